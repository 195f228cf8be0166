// SPDX-License-Identifier: Apache-2.0
// The container of weight differences: records of chunks with their tables (docs/reference/format_delta.md). The work
// per value is in delta_passes.h.
#include "codec/shared/delta/delta.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "codec/shared/delta/delta_passes.h"
#include "frame/checksum.h"

namespace tithe::delta {
namespace {

constexpr std::size_t kFixedBytes = 10;  // mode, the two sizes and the top exponent
constexpr std::uint8_t kRaw = 0, kCoded = 1;
static_assert(kChunk % kBlock == 0 && kBlock % kStates == 0);

Exponents exponents_of(Format format, unsigned top) {
  return {.shift = format == Format::kBf16 ? 7U : 10U,
          .mask = format == Format::kBf16 ? 0xffU : 0x1fU,
          .top = top};
}
// The largest exponent of a sample.
Exponents sampled(Format format, std::span<const std::uint16_t> before) {
  constexpr std::size_t kStride = 61;
  Exponents out = exponents_of(format, 0);
  for (std::size_t i = 0; i < before.size(); i += kStride) out.top = std::max(out.top, out.of(before[i]));
  return out;
}

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

// Memory that a chunk's encoder reuses for the next chunk.
struct Work {
  explicit Work(std::size_t n)
      : contexts(std::make_unique_for_overwrite<Context[]>(n)),
        extra(std::make_unique_for_overwrite<std::uint8_t[]>(2 * n + 8)),
        units(std::make_unique_for_overwrite<std::uint16_t[]>(n + 8)) {}

  const std::unique_ptr<Context[]> contexts;
  const std::unique_ptr<std::uint8_t[]> extra;
  const std::unique_ptr<std::uint16_t[]> units;
  EncodeTable table{};
};

// Occurrences by context. Four sets of counters take turns, so that equal neighbours do not wait for each other.
class Counters {
 public:
  void add(const Context* contexts, std::size_t n) {
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4)
      for (std::size_t k = 0; k < 4; ++k) ++sets_[k][contexts[i + k]];
    for (; i < n; ++i) ++sets_[0][contexts[i]];
  }
  Counts of_class(unsigned c) const {
    Counts out{};
    for (unsigned s = 0; s < kSymbols; ++s)
      for (const auto& set : sets_) out[s] += set[c << kSymbolBits | s];
    return out;
  }

 private:
  std::array<std::array<std::uint32_t, kContexts>, 4> sets_{};
};

// The coded record, or 0 if it would not be shorter than the values.
std::size_t encode_chunk(const Passes& passes, Format format, std::span<const std::uint16_t> before,
                         std::span<const std::uint16_t> now, Work& work, std::uint8_t* out) {
  const std::size_t n = now.size(), most = 2 * n;
  BitWriter extra(work.extra.get());
  const Exponents exponents = sampled(format, before);
  Counters counters;
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    Context* const contexts = work.contexts.get() + first;
    passes.model(exponents, before.data() + first, now.data() + first, count, contexts, extra);
    counters.add(contexts, count);
  }
  const auto extra_bytes = static_cast<std::size_t>(extra.end() - work.extra.get());
  std::array<Counts, kClasses> counts;
  for (unsigned c = 0; c < kClasses; ++c) counts[c] = counters.of_class(c);

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
      work.table[c << kSymbolBits | s] = encode_entry(f[s], start);
      start += f[s];
    }
  }

  States states;
  states.fill(kMinState);
  const std::uint16_t* const end = work.units.get() + n + 8;
  const std::uint16_t* const unit =
      passes.code(work.table, work.contexts.get(), n, states, work.units.get() + n + 8);
  const auto units = static_cast<std::size_t>(end - unit);
  if (fixed + 2 * units >= most) return 0;
  for (const std::uint32_t x : states) {
    wire::put(at, x);
    at += 4;
  }
  for (std::size_t k = 0; k < units; ++k, at += 2) wire::put(at, unit[k]);
  at = std::copy_n(work.extra.get(), extra_bytes, at);
  out[0] = kCoded;
  wire::put(out + 1, static_cast<std::uint32_t>(units));
  wire::put(out + 5, static_cast<std::uint32_t>(extra_bytes));
  out[9] = static_cast<std::uint8_t>(exponents.top);
  return static_cast<std::size_t>(at - out);
}

Status damaged() { return {Code::kCorrupt, "a weight difference is damaged"}; }

// Reads one record from `at`; the address behind it, or nullptr.
const std::uint8_t* decode_chunk(const Passes& passes, Format format, std::span<const std::uint16_t> before,
                                 const std::uint8_t* at, const std::uint8_t* end, DecodeTables& tables,
                                 std::span<std::uint16_t> now) {
  const std::size_t n = now.size();
  if (at == end) return nullptr;
  if (*at == kRaw) {
    if (static_cast<std::size_t>(end - ++at) < 2 * n) return nullptr;
    for (std::size_t i = 0; i < n; ++i) now[i] = wire::get<std::uint16_t>(at + 2 * i);
    return at + 2 * n;
  }
  if (*at != kCoded || static_cast<std::size_t>(end - at) < kFixedBytes) return nullptr;
  const std::size_t units = wire::get<std::uint32_t>(at + 1), extra_bytes = wire::get<std::uint32_t>(at + 5);
  const Exponents exponents = exponents_of(format, at[9]);
  at += kFixedBytes;
  for (auto& table : tables) {
    if (at == end) return nullptr;
    const unsigned listed = *at++;
    if (static_cast<std::size_t>(end - at) < 3 * listed) return nullptr;
    std::uint32_t slot = 0;
    for (unsigned k = 0; k < listed; ++k, at += 3) {
      const unsigned symbol = at[0], frequency = wire::get<std::uint16_t>(at + 1);
      if (symbol >= kSymbols || frequency == 0 || frequency > kScale - slot) return nullptr;
      for (unsigned distance = 0; distance < frequency; ++distance)
        table[slot++] = decode_entry(frequency, distance, symbol);
    }
    if (listed == 0) table.fill(decode_entry(1, 0, kNoSymbol));
    if (listed != 0 && slot != kScale) return nullptr;
  }
  const auto rest = static_cast<std::size_t>(end - at);
  if (units > n || rest < 4 * kStates || (rest - 4 * kStates) / 2 < units ||
      rest - 4 * kStates - 2 * units < extra_bytes)
    return nullptr;
  States states;
  for (std::uint32_t& x : states) {
    x = wire::get<std::uint32_t>(at);
    at += 4;
    if (x < kMinState || x >= kMinState << 16) return nullptr;
  }
  Units unit{at, at + 2 * units};
  BitReader extra(unit.end, unit.end + extra_bytes);
  std::array<std::uint16_t, kBlock> symbols;
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    const std::uint16_t* const old = before.data() + first;
    const std::size_t done = passes.decode(tables, exponents, old, count, states, unit, symbols.data());
    kReference.decode(tables, exponents, old + done, count - done, states, unit, symbols.data() + done);
    if (!passes.move(old, symbols.data(), count, extra, now.data() + first)) return nullptr;
  }
  const bool whole = std::ranges::all_of(states, [](std::uint32_t x) { return x == kMinState; });
  return whole && unit.at == unit.end && extra.over() ? unit.end + extra_bytes : nullptr;
}

std::uint64_t checksum_of(std::span<const std::uint16_t> values) {
  return checksum({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()}, {});
}

}  // namespace

std::size_t bound(std::size_t n) { return 8 + (n + kChunk - 1) / kChunk + 2 * n; }

std::size_t encode_by(const Passes& passes, Format format, std::span<const std::uint16_t> before,
                      std::span<const std::uint16_t> now, Bytes out) {
  wire::put(out.data(), checksum_of(before));
  std::uint8_t* at = out.data() + 8;
  Work work(std::min(kChunk, now.size()));
  for (std::size_t first = 0; first < now.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, now.size() - first);
    const std::span<const std::uint16_t> values = now.subspan(first, n);
    if (const std::size_t bytes = encode_chunk(passes, format, before.subspan(first, n), values, work, at);
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

Status decode_by(const Passes& passes, Format format, std::span<const std::uint16_t> before, ByteView payload,
                 std::span<std::uint16_t> now) {
  if (payload.size() < 8) return damaged();
  if (wire::get<std::uint64_t>(payload.data()) != checksum_of(before))
    return {Code::kMismatch, "a weight difference belongs to other previous weights"};
  const std::uint8_t *at = payload.data() + 8, *const end = payload.data() + payload.size();
  const auto tables = std::make_unique<DecodeTables>();
  for (std::size_t first = 0; first < now.size() && at != nullptr; first += kChunk) {
    const std::size_t n = std::min(kChunk, now.size() - first);
    at = decode_chunk(passes, format, before.subspan(first, n), at, end, *tables, now.subspan(first, n));
  }
  return at == end ? Status{} : damaged();
}

std::size_t encode(Format format, std::span<const std::uint16_t> before, std::span<const std::uint16_t> now,
                   Bytes out) {
  return encode_by(kSimd, format, before, now, out);
}

Status decode(Format format, std::span<const std::uint16_t> before, ByteView payload,
              std::span<std::uint16_t> now) {
  return decode_by(kSimd, format, before, payload, now);
}

// ---- Words

namespace {

constexpr std::uint32_t kExponent = 127U << 23;
constexpr std::size_t kHeadWords = 2;  // the number of bytes, 24 bits in each word

float word_of(std::uint32_t bits24) {
  return std::bit_cast<float>(kExponent | (bits24 & 0x7fffff) | (bits24 >> 23) << 31);
}
// kNoBits: not the result of word_of().
constexpr std::uint32_t kNoBits = 1U << 24;
std::uint32_t bits_of(float word) {
  const auto bits = std::bit_cast<std::uint32_t>(word);
  return (bits >> 23 & 0xff) == 127 ? (bits & 0x7fffff) | (bits >> 31) << 23 : kNoBits;
}

// A group of 32-bit words has fewer words than there are exponents, so at least one exponent does not occur. An
// exclusive or with a mask moves that exponent to 255, the exponent of NaN and Inf.
constexpr std::size_t kGroup = 255, kGroupBytes = 4 * kGroup;
using Group = std::array<std::uint8_t, kGroupBytes>;

std::uint32_t mask_of(const Group& group, std::size_t count) {
  std::array<bool, 256> used{};
  for (std::size_t k = 0; k < count; ++k) used[wire::get<std::uint32_t>(&group[4 * k]) >> 23 & 0xff] = true;
  return static_cast<std::uint32_t>(std::ranges::find(used, false) - used.begin()) ^ 0xffU;
}

}  // namespace

std::size_t words(std::size_t bytes) {
  return kHeadWords + (bytes + 3) / 4 + (bytes + kGroupBytes - 1) / kGroupBytes;
}

void pack(ByteView payload, std::span<float> out) {
  out[0] = word_of(payload.size() & 0xffffff);
  out[1] = word_of(payload.size() >> 24 & 0xffffff);
  float* to = &out[kHeadWords];
  for (std::size_t first = 0; first < payload.size(); first += kGroupBytes) {
    const std::size_t bytes = std::min(kGroupBytes, payload.size() - first), count = (bytes + 3) / 4;
    Group group{};
    std::memcpy(group.data(), &payload[first], bytes);
    const std::uint32_t mask = mask_of(group, count);
    *to++ = word_of(mask);
    for (std::size_t k = 0; k < count; ++k)
      *to++ = std::bit_cast<float>(wire::get<std::uint32_t>(&group[4 * k]) ^ mask << 23);
  }
  std::fill(to, out.data() + out.size(), 0.0F);
}

Result<std::size_t> unpack(std::span<const float> in, Bytes room) {
  if (in.size() < kHeadWords) return damaged();
  const std::uint32_t low = bits_of(in[0]), high = bits_of(in[1]);
  const std::size_t size = low | std::uint64_t{high} << 24;
  if (low == kNoBits || high == kNoBits || size > room.size() || words(size) > in.size()) return damaged();
  const float* from = &in[kHeadWords];
  for (std::size_t first = 0; first < size; first += kGroupBytes) {
    const std::size_t bytes = std::min(kGroupBytes, size - first), count = (bytes + 3) / 4;
    const std::uint32_t mask = bits_of(*from++);
    if (mask > 0xff) return damaged();
    Group group;
    for (std::size_t k = 0; k < count; ++k)
      wire::put(&group[4 * k], std::bit_cast<std::uint32_t>(*from++) ^ mask << 23);
    std::memcpy(&room[first], group.data(), bytes);
  }
  return size;
}

}  // namespace tithe::delta
