// SPDX-License-Identifier: Apache-2.0
// The encoder makes symbols, classes and extra bits of a chunk in one pass, counts them per class, and then runs rANS
// backward over the symbols, so that the decoder runs forward. Invariant of a state x between two symbols:
// 2^16 <= x < 2^32. A symbol of frequency f (of 2^11) needs x < f * 2^21 before it; a 16-bit unit is moved out to reach
// that, and moved back in by the decoder.
#include "codec/shared/delta/delta.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "base/bytes.h"

namespace tithe::delta {
namespace {

constexpr unsigned kScaleBits = 11, kScale = 1U << kScaleBits;
constexpr std::uint32_t kLeastState = 1U << 16;
constexpr std::size_t kStates = 8;
constexpr unsigned kClasses = 12, kDirect = 16, kSymbols = kDirect + 2 * 12;
constexpr std::size_t kFixedBytes = 9;  // mode and the two sizes
constexpr std::uint8_t kRaw = 0, kCoded = 1;

// A monotonic map from the bits of a float to a signed number; its own inverse.
std::int16_t ordered(std::uint16_t bits) {
  const auto v = static_cast<std::int16_t>(bits);
  return static_cast<std::int16_t>(v ^ ((v >> 15) & 0x7fff));
}
std::uint16_t zigzag(std::uint16_t before, std::uint16_t now) {
  const auto d = static_cast<std::int16_t>(ordered(now) - ordered(before));
  return static_cast<std::uint16_t>((static_cast<std::uint16_t>(d) << 1) ^
                                    static_cast<std::uint16_t>(d >> 15));
}
std::uint16_t moved(std::uint16_t before, unsigned z) {
  const auto d = static_cast<std::int16_t>((z >> 1) ^ (0U - (z & 1U)));
  return static_cast<std::uint16_t>(ordered(static_cast<std::uint16_t>(ordered(before) + d)));
}

struct Symbol {
  unsigned symbol, extra_bits, extra;
};
Symbol symbol_of(unsigned z) {
  const unsigned octave = static_cast<unsigned>(std::bit_width(z | kDirect)) - 1, bits = octave - 1;
  const bool direct = z < kDirect;
  return {direct ? z : kDirect + 2 * (octave - 4) + (z >> bits & 1U), direct ? 0 : bits,
          direct ? 0 : z & ((1U << bits) - 1)};
}
unsigned extra_bits_of(unsigned symbol) { return symbol < kDirect ? 0 : 3 + (symbol - kDirect) / 2; }
unsigned least_of(unsigned symbol) {
  return symbol < kDirect ? symbol : (2U | ((symbol - kDirect) & 1U)) << extra_bits_of(symbol);
}

// The classes of exponents in a chunk: the largest exponent has class 0.
class Classes {
 public:
  Classes(Format format, std::span<const std::uint16_t> before)
      : shift_(format == Format::kBf16 ? 7 : 10), mask_(format == Format::kBf16 ? 0xff : 0x1f) {
    for (const std::uint16_t v : before) top_ = std::max(top_, exponent(v));
  }
  unsigned of(std::uint16_t v) const { return std::min(top_ - exponent(v), kClasses - 1); }

 private:
  unsigned exponent(std::uint16_t v) const { return static_cast<unsigned>(v >> shift_) & mask_; }
  unsigned shift_, mask_, top_ = 0;
};

using Counts = std::array<std::uint32_t, kSymbols>;
using Frequencies = std::array<std::uint16_t, kSymbols>;

// Frequencies of at least 1 for symbols that occur, which add up to kScale. The largest take the rounding.
Frequencies scaled(const Counts& counts) {
  std::uint64_t total = 0;
  for (const std::uint32_t c : counts) total += c;
  Frequencies out{};
  if (total == 0) return out;
  int sum = 0;
  for (unsigned s = 0; s < kSymbols; ++s)
    if (counts[s] != 0) {
      out[s] =
          static_cast<std::uint16_t>(std::max<std::uint64_t>(1, counts[s] * std::uint64_t{kScale} / total));
      sum += out[s];
    }
  while (sum != static_cast<int>(kScale)) {
    std::uint16_t& most = *std::max_element(out.begin(), out.end());
    const int step = std::max(static_cast<int>(kScale) - sum, 1 - static_cast<int>(most));
    most = static_cast<std::uint16_t>(most + step);
    sum += step;
  }
  return out;
}

// Division of a state by a frequency, by multiplication with a reciprocal (Granlund and Montgomery 1994).
struct EncodeEntry {
  // From this state on, the encoder emits a 16-bit unit before it adds the symbol.
  std::uint64_t most = 0;
  std::uint32_t frequency = 0, start = 0;
  std::uint64_t reciprocal = 0;
  unsigned shift = 0;
};
EncodeEntry entry_of(std::uint32_t frequency, std::uint32_t start) {
  EncodeEntry e{
      .most = std::uint64_t{frequency} << (32 - kScaleBits), .frequency = frequency, .start = start};
  e.shift = static_cast<unsigned>(std::bit_width(frequency - 1));
  e.reciprocal = ((std::uint64_t{1} << (32 + e.shift)) + frequency - 1) / frequency;
  return e;
}
std::uint32_t quotient(const EncodeEntry& e, std::uint32_t x) {
  // The reciprocal has at most 33 bits, so the product has at most 65 bits: its high part is computed separately.
  const std::uint64_t low = e.reciprocal & 0xffffffffU, high = e.reciprocal >> 32;
  return static_cast<std::uint32_t>((high * x + (low * x >> 32)) >> e.shift);
}

// Writes bits from the lowest on. No branch depends on the data: each call stores 8 bytes, and the next call
// overwrites the incomplete ones.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* at) : at_(at) {}
  void put(unsigned value, unsigned bits) {
    hold_ |= std::uint64_t{value} << held_;
    held_ += bits;
    wire::put(at_, hold_);
    at_ += held_ / 8;
    hold_ >>= held_ / 8 * 8;
    held_ %= 8;
  }
  std::uint8_t* end() const { return at_ + (held_ != 0); }

 private:
  std::uint8_t* at_;
  std::uint64_t hold_ = 0;
  unsigned held_ = 0;
};

class BitReader {
 public:
  BitReader(const std::uint8_t* at, const std::uint8_t* end)
      : at_(at), bits_(8 * static_cast<std::size_t>(end - at)) {}
  bool has(std::size_t bits) const { return bits_ - taken_ >= bits; }
  // `bits` is 0 to 16, and 8 bytes from the current one on are readable.
  unsigned take(unsigned bits) {
    const auto word = wire::get<std::uint64_t>(at_ + taken_ / 8);
    const auto value = static_cast<unsigned>(word >> taken_ % 8) & ((1U << bits) - 1);
    taken_ += bits;
    return value;
  }
  // The same near the end. Zero if the bits end before.
  unsigned take_last(unsigned bits) {
    unsigned value = 0;
    for (unsigned k = 0; k < bits; ++k, ++taken_)
      if (taken_ < bits_) value |= (at_[taken_ / 8] >> taken_ % 8 & 1U) << k;
    return value;
  }
  // All bits were read, none past the end, and the padding bits of the last byte are 0.
  bool over() const {
    return taken_ <= bits_ && bits_ - taken_ < 8 && (taken_ % 8 == 0 || at_[taken_ / 8] >> taken_ % 8 == 0);
  }

 private:
  const std::uint8_t* at_;
  std::size_t bits_, taken_ = 0;
};

// Memory that a chunk's encoder reuses for the next chunk.
struct Work {
  std::vector<std::uint8_t> symbols, classes, extra;
  std::vector<std::uint16_t> units;
};

// The coded record, or 0 if it would not be shorter than the values.
std::size_t encode_chunk(Format format, std::span<const std::uint16_t> before,
                         std::span<const std::uint16_t> now, Work& work, std::uint8_t* out) {
  const std::size_t n = now.size(), most = 2 * n;
  const Classes classes(format, before);
  work.symbols.resize(n);
  work.classes.resize(n);
  work.extra.resize(2 * n + 8);
  // Counted alternately in two tables, so that equal adjacent symbols do not wait for each other's store.
  std::array<std::array<Counts, kClasses>, 2> halves{};
  BitWriter extra(work.extra.data());
  for (std::size_t i = 0; i < n; ++i) {
    const Symbol of = symbol_of(zigzag(before[i], now[i]));
    const unsigned c = classes.of(before[i]);
    work.symbols[i] = static_cast<std::uint8_t>(of.symbol);
    work.classes[i] = static_cast<std::uint8_t>(c);
    ++halves[i % 2][c][of.symbol];
    extra.put(of.extra, of.extra_bits);
  }
  const auto extra_bytes = static_cast<std::size_t>(extra.end() - work.extra.data());
  std::array<Counts, kClasses>& counts = halves[0];
  for (unsigned c = 0; c < kClasses; ++c)
    for (unsigned k = 0; k < kSymbols; ++k) counts[c][k] += halves[1][c][k];

  std::array<std::array<EncodeEntry, kSymbols>, kClasses> entries;
  std::uint8_t* at = out + kFixedBytes;
  // Tables are at most kClasses * (1 + 3 * kSymbols) bytes; a chunk of fewer values may be too small for its tables.
  std::size_t table_bytes = kClasses;
  for (const Counts& c : counts)
    table_bytes +=
        3 * static_cast<std::size_t>(std::ranges::count_if(c, [](std::uint32_t k) { return k != 0; }));
  const std::size_t fixed = kFixedBytes + table_bytes + 4 * kStates + extra_bytes;
  if (fixed >= most) return 0;
  for (unsigned c = 0; c < kClasses; ++c) {
    const Frequencies f = scaled(counts[c]);
    std::uint8_t* const listed = at++;
    *listed = 0;
    std::uint32_t start = 0;
    for (unsigned s = 0; s < kSymbols; ++s) {
      if (f[s] == 0) continue;
      ++*listed;
      *at = static_cast<std::uint8_t>(s);
      wire::put(at + 1, f[s]);
      at += 3;
      entries[c][s] = entry_of(f[s], start);
      start += f[s];
    }
  }

  work.units.resize(n + 1);  // a symbol moves out one unit at most
  std::uint16_t* unit = work.units.data() + work.units.size();
  std::array<std::uint32_t, kStates> states;
  states.fill(kLeastState);
  for (std::size_t i = n; i-- > 0;) {
    const EncodeEntry& e = entries[work.classes[i]][work.symbols[i]];
    std::uint32_t x = states[i % kStates];
    unit[-1] = static_cast<std::uint16_t>(x);
    const bool full = x >= e.most;
    unit -= full;
    x >>= full ? 16 : 0;
    const std::uint32_t q = quotient(e, x);
    states[i % kStates] = (q << kScaleBits) + (x - q * e.frequency) + e.start;
  }
  const auto units = static_cast<std::size_t>(work.units.data() + work.units.size() - unit);
  if (fixed + 2 * units >= most) return 0;
  for (const std::uint32_t x : states) {
    wire::put(at, x);
    at += 4;
  }
  for (std::size_t k = 0; k < units; ++k, at += 2) wire::put(at, unit[k]);
  at = std::copy_n(work.extra.data(), extra_bytes, at);
  out[0] = kCoded;
  wire::put(out + 1, static_cast<std::uint32_t>(units));
  wire::put(out + 5, static_cast<std::uint32_t>(extra_bytes));
  return static_cast<std::size_t>(at - out);
}

struct DecodeEntry {
  std::uint16_t frequency = 0, rest = 0;  // of the slot: its distance from the symbol's first
  std::uint16_t least = 0;
  std::uint8_t extra_bits = 0;
};
using Tables = std::array<std::array<DecodeEntry, kScale>, kClasses>;

Status damaged() { return {Code::kCorrupt, "a weight difference is damaged"}; }

// Reads one record at `at`; returns its end, or nullptr if it is damaged.
const std::uint8_t* decode_chunk(Format format, std::span<const std::uint16_t> before, const std::uint8_t* at,
                                 const std::uint8_t* end, Tables& tables, std::span<std::uint16_t> now) {
  const std::size_t n = now.size();
  if (at == end) return nullptr;
  if (*at == kRaw) {
    if (static_cast<std::size_t>(end - ++at) < 2 * n) return nullptr;
    for (std::size_t i = 0; i < n; ++i) now[i] = wire::get<std::uint16_t>(at + 2 * i);
    return at + 2 * n;
  }
  if (*at != kCoded || static_cast<std::size_t>(end - at) < kFixedBytes) return nullptr;
  const std::size_t units = wire::get<std::uint32_t>(at + 1), extra_bytes = wire::get<std::uint32_t>(at + 5);
  at += kFixedBytes;
  std::array<bool, kClasses> has{};
  for (unsigned c = 0; c < kClasses; ++c) {
    if (at == end) return nullptr;
    const unsigned listed = *at++;
    if (static_cast<std::size_t>(end - at) < 3 * listed) return nullptr;
    std::uint32_t slot = 0;
    for (unsigned k = 0; k < listed; ++k, at += 3) {
      const unsigned symbol = at[0], frequency = wire::get<std::uint16_t>(at + 1);
      if (symbol >= kSymbols || frequency == 0 || frequency > kScale - slot) return nullptr;
      for (unsigned rest = 0; rest < frequency; ++rest)
        tables[c][slot++] = {static_cast<std::uint16_t>(frequency), static_cast<std::uint16_t>(rest),
                             static_cast<std::uint16_t>(least_of(symbol)),
                             static_cast<std::uint8_t>(extra_bits_of(symbol))};
    }
    has[c] = listed != 0;
    if (has[c] && slot != kScale) return nullptr;
  }
  const auto rest = static_cast<std::size_t>(end - at);
  if (units > n || rest < 4 * kStates || (rest - 4 * kStates) / 2 < units ||
      rest - 4 * kStates - 2 * units < extra_bytes)
    return nullptr;
  const Classes classes(format, before);
  std::array<std::uint32_t, kStates> states;
  for (std::uint32_t& x : states) {
    x = wire::get<std::uint32_t>(at);
    at += 4;
    if (x < kLeastState) return nullptr;
  }
  const std::uint8_t *unit = at, *const units_end = at + 2 * units;
  BitReader extra(units_end, units_end + extra_bytes);
  bool known = true;
  // One value. `last`: near the end of the units or bits, where each read is tested.
  const auto value = [&](std::size_t i, bool last) {
    const std::uint16_t old = before[i];
    const unsigned c = classes.of(old);
    known = known && has[c];
    std::uint32_t x = states[i % kStates];
    const DecodeEntry e = tables[c][x & (kScale - 1)];
    x = e.frequency * (x >> kScaleBits) + e.rest;
    const bool low = x < kLeastState && (!last || unit != units_end);
    const std::uint32_t more = last && !low ? 0 : wire::get<std::uint16_t>(unit);
    states[i % kStates] = low ? x << 16 | more : x;
    unit += low ? 2 : 0;
    now[i] = moved(old, e.least + (last ? extra.take_last(e.extra_bits) : extra.take(e.extra_bits)));
  };
  std::size_t i = 0;
  // 8 values take at most 16 bytes of units and 14 bytes of bits, so reading ahead stays within the payload.
  for (; i + kStates <= n && units_end - unit >= 16 && extra.has(8 * 22); i += kStates)
    for (std::size_t k = 0; k < kStates; ++k) value(i + k, false);
  for (; i < n; ++i) value(i, true);
  if (!known) return nullptr;
  const bool whole = std::ranges::all_of(states, [](std::uint32_t x) { return x == kLeastState; });
  return whole && unit == units_end && extra.over() ? units_end + extra_bytes : nullptr;
}

std::uint64_t checksum(std::span<const std::uint16_t> values) {
  return XXH3_64bits(values.data(), values.size_bytes());
}

}  // namespace

std::size_t bound(std::size_t n) { return 8 + (n + kChunk - 1) / kChunk + 2 * n; }

std::size_t encode(Format format, std::span<const std::uint16_t> before, std::span<const std::uint16_t> now,
                   Bytes out) {
  wire::put(out.data(), checksum(before));
  std::uint8_t* at = out.data() + 8;
  Work work;
  for (std::size_t first = 0; first < now.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, now.size() - first);
    const std::span<const std::uint16_t> values = now.subspan(first, n);
    if (const std::size_t bytes = encode_chunk(format, before.subspan(first, n), values, work, at);
        bytes != 0) {
      at += bytes;
      continue;
    }
    *at++ = kRaw;
    for (const std::uint16_t v : values) {
      wire::put(at, v);
      at += 2;
    }
  }
  return static_cast<std::size_t>(at - out.data());
}

Status decode(Format format, std::span<const std::uint16_t> before, ByteView payload,
              std::span<std::uint16_t> now) {
  if (payload.size() < 8) return damaged();
  if (wire::get<std::uint64_t>(payload.data()) != checksum(before))
    return {Code::kMismatch, "a weight difference belongs to other previous weights"};
  const std::uint8_t *at = payload.data() + 8, *const end = payload.data() + payload.size();
  const auto tables = std::make_unique<Tables>();
  for (std::size_t first = 0; first < now.size() && at != nullptr; first += kChunk) {
    const std::size_t n = std::min(kChunk, now.size() - first);
    at = decode_chunk(format, before.subspan(first, n), at, end, *tables, now.subspan(first, n));
  }
  return at == end ? Status{} : damaged();
}

// ---- Words

namespace {

constexpr std::uint32_t kExponent = 127U << 23;
constexpr std::size_t kWordBytes = 3, kHeadWords = 2;  // the number of bytes, 24 bits in each word

float word_of(std::uint32_t bits24) {
  return std::bit_cast<float>(kExponent | (bits24 & 0x7fffff) | (bits24 >> 23) << 31);
}
// kNoBits: no word that pack() writes.
constexpr std::uint32_t kNoBits = 1U << 24;
std::uint32_t bits_of(float word) {
  const auto bits = std::bit_cast<std::uint32_t>(word);
  return (bits >> 23 & 0xff) == 127 ? (bits & 0x7fffff) | (bits >> 31) << 23 : kNoBits;
}

}  // namespace

std::size_t words(std::size_t bytes) { return kHeadWords + (bytes + kWordBytes - 1) / kWordBytes; }

void pack(ByteView payload, std::span<float> out) {
  out[0] = word_of(payload.size() & 0xffffff);
  out[1] = word_of(payload.size() >> 24 & 0xffffff);
  std::size_t at = 0, word = kHeadWords;
  for (; at + kWordBytes <= payload.size(); at += kWordBytes)
    out[word++] = word_of(payload[at] | payload[at + 1] << 8 | payload[at + 2] << 16);
  if (at < payload.size()) {
    std::uint32_t bits = payload[at];
    if (at + 1 < payload.size()) bits |= static_cast<std::uint32_t>(payload[at + 1]) << 8;
    out[word++] = word_of(bits);
  }
  std::ranges::fill(out.subspan(word), 0.0F);
}

Result<std::size_t> unpack(std::span<const float> in, Bytes room) {
  if (in.size() < kHeadWords) return damaged();
  const std::uint32_t low = bits_of(in[0]), high = bits_of(in[1]);
  const std::size_t bytes = low | std::uint64_t{high} << 24;
  if (low == kNoBits || high == kNoBits || bytes > room.size() || words(bytes) > in.size()) return damaged();
  for (std::size_t at = 0, word = kHeadWords; at < bytes; ++word) {
    const std::uint32_t bits = bits_of(in[word]);
    if (bits == kNoBits) return damaged();
    for (unsigned k = 0; k < kWordBytes && at < bytes; ++k)
      room[at++] = static_cast<std::uint8_t>(bits >> 8 * k);
  }
  return bytes;
}

}  // namespace tithe::delta
