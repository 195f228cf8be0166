// SPDX-License-Identifier: Apache-2.0
#include "codec/blocks/blocks.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "base/fold.h"
#include "codec/shared/common/block.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe {
namespace blocks {
namespace {

using sparse::ValueForm;

enum Param : std::size_t { kRatio, kValues };
constexpr ParamSpec kParams[] = {
    {"ratio", 1, 1e-6, 1, "largest fraction of the blocks that is sent", {}, Role::kRatio},
    sparse::kValuesParam};

constexpr std::size_t kAtOnce = 64;         // payloads merged in one pass over the output
constexpr std::size_t kMeasuredAtOnce = 4;  // blocks measured, then sent, while they are in the L1 cache

constexpr std::size_t kBitmap = 1;  // offset of the bitmap
std::size_t bitmap_bytes(std::size_t n) { return (count(n) + 7) / 8; }
std::size_t head(std::size_t n) { return kBitmap + bitmap_bytes(n); }
std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], count(n)); }
std::size_t max_values(const Settings& s, std::size_t n) { return std::min(n, kBlock * most(s, n)); }
ValueForm form_of(const Settings& s) { return static_cast<ValueForm>(static_cast<int>(s[kValues])); }

std::size_t bound(const Settings& s, std::size_t n) {
  return head(n) + sparse::value_bytes(form_of(s), max_values(s, n));
}

// Scratch: Stats and a block index per block; for forms other than fp32 also the values to be sent, as fp32.
std::size_t stats_bytes(std::size_t n) {
  return (count(n) * (sizeof(Stats) + sizeof(std::uint32_t)) + 63) / 64 * 64;
}
std::size_t scratch(const Settings& s, std::size_t n) {
  return stats_bytes(n) + (form_of(s) == ValueForm::kF32 ? 0 : 4 * max_values(s, n));
}

// The blocks that are sent hold at least their share of the energy; a rounded form loses some of it.
double contraction(const Settings& s, std::size_t n) {
  return 1 - sparse::kKeptEnergy[static_cast<std::size_t>(form_of(s))] * static_cast<double>(most(s, n)) /
                 static_cast<double>(count(n));
}

bool is_sent(const std::uint8_t* bitmap, std::size_t block) { return bitmap[block / 8] >> block % 8 & 1U; }

std::size_t sent_blocks(const std::uint8_t* bitmap, std::size_t n) {
  std::size_t sent = 0, k = 0;
  for (; k + 8 <= bitmap_bytes(n); k += 8)
    sent += static_cast<std::size_t>(std::popcount(wire::get<std::uint64_t>(bitmap + k)));
  for (; k < bitmap_bytes(n); ++k) sent += static_cast<std::size_t>(std::popcount(bitmap[k]));
  return sent;
}
std::size_t sent_values(const std::uint8_t* bitmap, std::size_t n) {
  const std::size_t sent = sent_blocks(bitmap, n), last = count(n) - 1;
  return n > 0 && is_sent(bitmap, last) ? kBlock * (sent - 1) + length(n, last) : kBlock * sent;
}

// Blocks of zeros are never sent.
bool all_zero(const std::uint8_t* values, std::size_t len) {
  for (std::size_t i = 0; i < len; ++i)
    if (sparse::magnitude(wire::get<float>(values + 4 * i)) != 0) return false;
  return true;
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  const auto corrupt = [](const char* why) { return Status(Code::kCorrupt, std::string("blocks: ") + why); };
  if (payload.size() < head(n)) return corrupt("the bitmap is truncated");
  if (payload[0] > sparse::kLastValueForm) return corrupt("unknown form");
  const auto form = static_cast<ValueForm>(payload[0]);
  const std::uint8_t* bitmap = &payload[kBitmap];
  if (count(n) % 8 != 0 && bitmap[bitmap_bytes(n) - 1] >> count(n) % 8 != 0)
    return corrupt("a bit past the last block");
  if (sent_blocks(bitmap, n) > most(call.settings, n)) return corrupt("more blocks than the ratio allows");
  const ByteView array = payload.subspan(head(n));
  const std::size_t values = sent_values(bitmap, n);
  if (sparse::array_bytes(form, array, values) != array.size())
    return corrupt("its length differs from the length of its blocks");
  if (!sparse::values_hold(form, array, values)) return corrupt("an invalid code");
  std::size_t at = 0;
  for (std::size_t b = 0; b < count(n) && form == ValueForm::kF32;
       ++b) {  // other forms may round a block to zeros
    if (!is_sent(bitmap, b)) continue;
    if (all_zero(array.data() + at, length(n, b))) return corrupt("a block of zeros");
    at += 4 * length(n, b);
  }
  return {};
}

void mark(std::uint8_t* bitmap, std::size_t block) {
  bitmap[block / 8] = static_cast<std::uint8_t>(bitmap[block / 8] | 1U << block % 8);
}

// Selects at most `most` nonzero blocks and writes their bitmap. `chosen` is working memory. True: all values are
// finite.
bool choose(std::span<const Stats> stats, std::size_t most, std::uint32_t* chosen, std::uint8_t* bitmap) {
  bool finite = true;
  std::size_t candidates = 0;
  for (std::size_t b = 0; b < stats.size(); ++b) {
    finite = finite && stats[b].largest < sparse::kFirstNonFinite;
    if (stats[b].largest != 0) chosen[candidates++] = static_cast<std::uint32_t>(b);
  }
  const auto energy = [&](std::uint32_t b) {
    return stats[b].largest < sparse::kFirstNonFinite ? stats[b].squares
                                                      : std::numeric_limits<double>::infinity();
  };
  const std::size_t k = std::min(candidates, most);
  if (k < candidates)
    std::nth_element(chosen, chosen + k, chosen + candidates, [&](std::uint32_t a, std::uint32_t b) {
      return energy(a) != energy(b) ? energy(a) > energy(b) : a < b;
    });
  std::fill_n(bitmap, (stats.size() + 7) / 8, std::uint8_t{0});
  for (std::size_t j = 0; j < k; ++j) mark(bitmap, chosen[j]);
  return finite;
}

// Collects the values to be sent in a form other than fp32.
class Gathered {
 public:
  Gathered(const Call& call, std::size_t n)
      : values_(reinterpret_cast<float*>(call.scratch.data() + stats_bytes(n))) {}
  void add(float v) { values_[count_++] = v; }
  void add(std::span<const float> values) {
    std::copy(values.begin(), values.end(), values_ + count_);
    count_ += values.size();
  }
  // Writes the value array; the form's rounding errors go to residual_out. Returns the end of the payload.
  std::uint8_t* write(ValueForm form, const std::uint8_t* bitmap, const EncodeInput& in,
                      std::uint8_t* to) const {
    std::uint8_t* const end = sparse::write_values(form, {values_, count_}, to);
    sparse::ValueReader sent(form, to, count_);
    const float* value = values_;
    for (std::size_t b = 0; in.residual_out && b < count(in.n); ++b) {
      if (!is_sent(bitmap, b)) continue;
      for (std::size_t first = 0; first < length(in.n, b); first += sparse::kValueBlock) {
        std::array<float, sparse::kValueBlock> sends;
        const std::size_t some = std::min(sparse::kValueBlock, length(in.n, b) - first);
        sent.read({sends.data(), some});
        for (std::size_t k = 0; k < some; ++k) in.residual_out[b * kBlock + first + k] = *value++ - sends[k];
      }
    }
    return end;
  }

 private:
  float* values_;
  std::size_t count_ = 0;
};

Status prepare(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("blocks", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("blocks", call.scratch.size(), scratch(call.settings, in.n)));
  out[0] = static_cast<std::uint8_t>(form_of(call.settings));
  return {};
}

// Three steps: the statistics of each block, the choice of blocks (written as a bitmap), then the values of the
// chosen blocks. Unsent values stay in the residual.
Result<Encoded> encode_ref(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(prepare(call, in, out));
  const std::span<Stats> stats(reinterpret_cast<Stats*>(call.scratch.data()), count(in.n));
  auto* chosen = reinterpret_cast<std::uint32_t*>(stats.data() + stats.size());
  for (std::size_t b = 0; b < stats.size(); ++b) {
    Fold<double> squares;
    stats[b].largest = 0;
    for (std::size_t i = 0; i < length(in.n, b); ++i) {
      const float v = in.value(b * kBlock + i);
      squares.add(i, double{v} * double{v});
      stats[b].largest = std::max(stats[b].largest, sparse::magnitude(v));
    }
    stats[b].squares = squares.total();
  }
  std::uint8_t* const bitmap = &out[kBitmap];
  const bool finite = choose(stats, most(call.settings, in.n), chosen, bitmap);
  const ValueForm form = form_of(call.settings);
  Gathered gathered(call, in.n);
  std::uint8_t* p = out.data() + head(in.n);
  for (std::size_t b = 0; b < count(in.n); ++b) {
    const bool sends = is_sent(bitmap, b);
    for (std::size_t i = b * kBlock; i < b * kBlock + length(in.n, b); ++i) {
      const float v = in.value(i);
      if (sends && form == ValueForm::kF32) wire::put(p, v), p += 4;
      if (sends && form != ValueForm::kF32) gathered.add(v);
      in.store_residual(i, sends ? v : 0.0F);
    }
  }
  if (form != ValueForm::kF32) p = gathered.write(form, bitmap, in, p);
  return Encoded{static_cast<std::size_t>(p - out.data()), finite};
}

// send_at and gather_at read a block after measure(): from residual_out, if there is one.
std::uint8_t* send_at(const EncodeInput& in, std::size_t block, std::uint8_t* p) {
  const std::size_t first = block * kBlock, len = length(in.n, block);
  if (in.residual_out) {
    std::memcpy(p, in.residual_out + first, 4 * len);
    std::fill_n(in.residual_out + first, len, 0.0F);
  } else {
    for (std::size_t i = 0; i < len; ++i) wire::put(p + 4 * i, in.value(first + i));
  }
  return p + 4 * len;
}
void gather_at(const EncodeInput& in, std::size_t block, Gathered& gathered) {
  const std::size_t first = block * kBlock, len = length(in.n, block);
  if (in.residual_out) return gathered.add({in.residual_out + first, len});
  for (std::size_t i = 0; i < len; ++i) gathered.add(in.value(first + i));
}

// Leaves all blocks whole, then sends the selected ones. If any number of blocks may be sent, as fp32, both happen in
// one pass over memory.
Result<Encoded> encode_simd(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(prepare(call, in, out));
  const std::size_t blocks = count(in.n);
  const std::span<Stats> stats(reinterpret_cast<Stats*>(call.scratch.data()), blocks);
  auto* chosen = reinterpret_cast<std::uint32_t*>(stats.data() + blocks);
  const ValueForm form = form_of(call.settings);
  const bool all = most(call.settings, in.n) == blocks && form == ValueForm::kF32;
  std::uint8_t* const bitmap = &out[kBitmap];
  std::uint8_t* p = out.data() + head(in.n);
  bool finite = true;
  if (all) std::fill_n(bitmap, bitmap_bytes(in.n), std::uint8_t{0});
  for (std::size_t b = 0; b < blocks; b += kMeasuredAtOnce) {
    const std::size_t first = b * kBlock, end = std::min(b + kMeasuredAtOnce, blocks);
    measure(block::part(in, first, std::min(in.n - first, kMeasuredAtOnce * kBlock)), !all, &stats[b]);
    for (std::size_t s = b; all && s < end; ++s) {
      finite = finite && stats[s].largest < sparse::kFirstNonFinite;
      if (stats[s].largest == 0) continue;
      mark(bitmap, s);
      p = send_at(in, s, p);
    }
  }
  if (all) return Encoded{static_cast<std::size_t>(p - out.data()), finite};
  finite = choose(stats, most(call.settings, in.n), chosen, bitmap);
  Gathered gathered(call, in.n);
  for (std::size_t b = 0; b < blocks; ++b) {
    if (!is_sent(bitmap, b)) continue;
    if (form == ValueForm::kF32)
      p = send_at(in, b, p);
    else
      gather_at(in, b, gathered);
  }
  if (form != ValueForm::kF32) p = gathered.write(form, bitmap, in, p);
  return Encoded{static_cast<std::size_t>(p - out.data()), finite};
}

// Reads the blocks of a payload in order, as bytes of f32.
class Reader {
 public:
  Reader() = default;
  Reader(ByteView payload, std::size_t n)
      : form_(static_cast<ValueForm>(payload[0])), bitmap_(&payload[kBitmap]), at_(payload.data() + head(n)) {
    if (form_ != ValueForm::kF32) values_ = {form_, at_, sent_values(bitmap_, n)};
  }
  bool has(std::size_t block) const { return is_sent(bitmap_, block); }
  const std::uint8_t* read(std::size_t len, float* buffer) {
    const std::uint8_t* here = at_;
    if (form_ == ValueForm::kF32) return at_ += 4 * len, here;
    for (std::size_t k = 0; k < len; k += sparse::kValueBlock)
      values_.read({buffer + k, std::min(sparse::kValueBlock, len - k)});
    return reinterpret_cast<const std::uint8_t*>(buffer);
  }

 private:
  ValueForm form_ = ValueForm::kF32;
  const std::uint8_t* bitmap_ = nullptr;
  const std::uint8_t* at_ = nullptr;
  sparse::ValueReader values_;
};

// Merges one block of the output: base, then the block of each payload that has it. `buffer` holds a block per payload.
void merge_block_ref(std::span<Reader> payloads, std::size_t block, float* buffer, const float* base,
                     float divide, std::span<float> out) {
  bool started = base != nullptr;
  if (base && base != out.data()) std::copy_n(base, out.size(), out.data());
  for (Reader& payload : payloads) {
    if (!payload.has(block)) continue;
    const std::uint8_t* values = payload.read(out.size(), buffer);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float v = wire::get<float>(values + 4 * i);
      out[i] = started ? out[i] + v : 0.0F + v;
    }
    started = true;
  }
  if (!started) std::fill(out.begin(), out.end(), 0.0F);
  if (divide != 1.0F)
    for (float& v : out) v /= divide;
}

void merge_block_simd(std::span<Reader> payloads, std::size_t block, float* buffer, const float* base,
                      float divide, std::span<float> out) {
  const std::uint8_t* sent[kAtOnce];
  std::size_t senders = 0;
  for (Reader& payload : payloads) {
    if (!payload.has(block)) continue;
    sent[senders] = payload.read(out.size(), buffer + kBlock * senders);
    ++senders;
  }
  if (senders == 0 && base == out.data() && divide == 1.0F) return;
  merge_sent({sent, senders}, base, divide, out);
}

template <auto kMergeBlock>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  const float* base = merge.base;
  std::array<float, kBlock * kAtOnce> buffer;
  std::array<Reader, kAtOnce> now;
  std::size_t first = 0;
  do {
    const std::size_t readers = std::min(kAtOnce, payloads.size() - first);
    for (std::size_t p = 0; p < readers; ++p) now[p] = Reader(payloads[first + p], out.size());
    first += readers;
    const float divide = first == payloads.size() ? merge.divide : 1.0F;
    for (std::size_t b = 0; b < count(out.size()); ++b)
      kMergeBlock({now.data(), readers}, b, buffer.data(), base ? base + b * kBlock : nullptr, divide,
                  out.subspan(b * kBlock, length(out.size(), b)));
    base = out.data();
  } while (first < payloads.size());
  return {};
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "blocks", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {
    codec::simd({.encode = encode_simd, .decode = decode<merge_block_simd>, .check = check}),
    codec::reference({.encode = encode_ref, .decode = decode<merge_block_ref>, .check = check})};

}  // namespace
}  // namespace blocks

const Codec blocks_codec = {.name = "blocks",
                            .doc = "blocks of 256 values that are not all zero (Fei et al. 2021)",
                            .params = blocks::kParams,
                            .phases = blocks::kPhases,
                            .traits = {.exact_ledger = true, .contraction = blocks::contraction},
                            .scratch = blocks::scratch,
                            .impls = blocks::kImpls};

}  // namespace tithe
