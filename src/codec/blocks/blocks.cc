// SPDX-License-Identifier: Apache-2.0
// blocks: blocks of 256 values that hold something other than zero, whole (OmniReduce: Fei et al., SIGCOMM 2021).
// With a ratio below 1, only that share of all blocks: those of the largest squared norm, the lower one first among
// equals.
//
// Layout   one bit per block, lowest bit first, 1 = sent; bits past the last block are 0
//          f32 values of the blocks that are sent, in order; the last block may be shorter
#include "codec/blocks/blocks.h"

#include <cstring>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "base/fold.h"
#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/sparse.h"

namespace tithe {
namespace blocks {
namespace {

enum Param : std::size_t { kRatio };
constexpr ParamSpec kParams[] = {{"ratio", 1, 1e-6, 1, "fraction of the blocks that is sent, at most"}};

constexpr std::size_t kAtOnce = 64;   // payloads in one pass over the output
constexpr std::size_t kLookedAt = 4;  // blocks that are looked at, then sent: they stay in the nearest cache

std::size_t bitmap_bytes(std::size_t n) { return (count(n) + 7) / 8; }
std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], count(n)); }

std::size_t bound(const Settings& s, std::size_t n) {
  return bitmap_bytes(n) + 4 * std::min(n, kBlock * most(s, n));
}

std::size_t scratch(const Settings&, std::size_t n) {
  return count(n) * (sizeof(Held) + sizeof(std::uint32_t));
}

// The blocks that are sent hold at least their share of the energy.
double contraction(const Settings& s, std::size_t n) {
  return 1 - static_cast<double>(most(s, n)) / static_cast<double>(count(n));
}

bool is_sent(const std::uint8_t* bitmap, std::size_t block) { return bitmap[block / 8] >> block % 8 & 1U; }

// Zeros alone are never sent.
bool says_nothing(const std::uint8_t* values, std::size_t len) {
  for (std::size_t i = 0; i < len; ++i)
    if (sparse::magnitude(wire::get<float>(values + 4 * i)) != 0) return false;
  return true;
}

Status check(const Settings& s, std::size_t n, ByteView payload) {
  const auto corrupt = [](const char* why) { return Status(Code::kCorrupt, std::string("blocks: ") + why); };
  const std::size_t head = bitmap_bytes(n);
  if (payload.size() < head) return corrupt("the bitmap is cut off");
  if (count(n) % 8 != 0 && payload[head - 1] >> count(n) % 8 != 0)
    return corrupt("a bit past the last block");
  std::size_t sent = 0, at = head;
  for (std::size_t b = 0; b < count(n); ++b) {
    if (!is_sent(payload.data(), b)) continue;
    const std::size_t len = length(n, b);
    if (payload.size() - at < 4 * len) return corrupt("too short for the blocks that it names");
    if (says_nothing(&payload[at], len)) return corrupt("a block of zeros");
    at += 4 * len;
    ++sent;
  }
  if (at != payload.size()) return corrupt("too long for the blocks that it names");
  if (sent > most(s, n)) return corrupt("more blocks than the ratio allows");
  return {};
}

void mark(std::uint8_t* bitmap, std::size_t block) {
  bitmap[block / 8] = static_cast<std::uint8_t>(bitmap[block / 8] | 1U << block % 8);
}

// Writes the bitmap of the blocks that are sent, of those that hold something. Returns whether all values are finite.
bool choose(std::span<const Held> held, std::size_t most, std::uint32_t* chosen, std::uint8_t* bitmap) {
  bool finite = true;
  std::size_t candidates = 0;
  for (std::size_t b = 0; b < held.size(); ++b) {
    finite = finite && held[b].largest < sparse::kFirstNonFinite;
    if (held[b].largest != 0) chosen[candidates++] = static_cast<std::uint32_t>(b);
  }
  const auto energy = [&](std::uint32_t b) {
    return held[b].largest < sparse::kFirstNonFinite ? held[b].squares
                                                     : std::numeric_limits<double>::infinity();
  };
  const std::size_t k = std::min(candidates, most);
  if (k < candidates)
    std::nth_element(chosen, chosen + k, chosen + candidates, [&](std::uint32_t a, std::uint32_t b) {
      return energy(a) != energy(b) ? energy(a) > energy(b) : a < b;
    });
  std::fill_n(bitmap, (held.size() + 7) / 8, std::uint8_t{0});
  for (std::size_t j = 0; j < k; ++j) mark(bitmap, chosen[j]);
  return finite;
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("blocks", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("blocks", call.scratch.size(), scratch(call.settings, in.n)));
  const std::span<Held> held(reinterpret_cast<Held*>(call.scratch.data()), count(in.n));
  auto* chosen = reinterpret_cast<std::uint32_t*>(held.data() + held.size());
  for (std::size_t b = 0; b < held.size(); ++b) {
    Fold<double> squares;
    held[b].largest = 0;
    for (std::size_t i = 0; i < length(in.n, b); ++i) {
      const float v = in.take(b * kBlock + i);
      squares.add(i, double{v} * double{v});
      held[b].largest = std::max(held[b].largest, sparse::magnitude(v));
    }
    held[b].squares = squares.total();
  }
  const bool finite = choose(held, most(call.settings, in.n), chosen, out.data());
  std::uint8_t* p = out.data() + bitmap_bytes(in.n);
  for (std::size_t b = 0; b < count(in.n); ++b) {
    const bool sends = is_sent(out.data(), b);
    for (std::size_t i = b * kBlock; i < b * kBlock + length(in.n, b); ++i) {
      const float v = in.take(i);
      if (sends) wire::put(p, v), p += 4;
      in.leave(i, sends ? v : 0.0F);
    }
  }
  return Encoded{static_cast<std::size_t>(p - out.data()), finite};
}

// Of a block that has been left whole.
std::uint8_t* send_left(const Carry& in, std::size_t block, std::uint8_t* p) {
  const std::size_t first = block * kBlock, len = length(in.n, block);
  if (in.left) {
    std::memcpy(p, in.left + first, 4 * len);
    std::fill_n(in.left + first, len, 0.0F);
  } else {
    for (std::size_t i = 0; i < len; ++i) wire::put(p + 4 * i, in.take(first + i));
  }
  return p + 4 * len;
}

// All blocks are left whole, then the chosen ones are sent: at once, where every block may be.
Result<Encoded> encode_fast(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("blocks", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("blocks", call.scratch.size(), scratch(call.settings, in.n)));
  const std::size_t blocks = count(in.n);
  const std::span<Held> held(reinterpret_cast<Held*>(call.scratch.data()), blocks);
  auto* chosen = reinterpret_cast<std::uint32_t*>(held.data() + blocks);
  const bool all = most(call.settings, in.n) == blocks;
  std::uint8_t* p = out.data() + bitmap_bytes(in.n);
  bool finite = true;
  if (all) std::fill_n(out.data(), bitmap_bytes(in.n), std::uint8_t{0});
  for (std::size_t b = 0; b < blocks; b += kLookedAt) {
    const std::size_t first = b * kBlock, end = std::min(b + kLookedAt, blocks);
    look({in.grad + first, in.residual ? in.residual + first : nullptr, in.left ? in.left + first : nullptr,
          std::min(in.n - first, kLookedAt * kBlock)},
         !all, &held[b]);
    for (std::size_t s = b; all && s < end; ++s) {
      finite = finite && held[s].largest < sparse::kFirstNonFinite;
      if (held[s].largest == 0) continue;
      mark(out.data(), s);
      p = send_left(in, s, p);
    }
  }
  if (!all) {
    finite = choose(held, most(call.settings, in.n), chosen, out.data());
    for (std::size_t b = 0; b < blocks; ++b)
      if (is_sent(out.data(), b)) p = send_left(in, b, p);
  }
  return Encoded{static_cast<std::size_t>(p - out.data()), finite};
}

// One block of the output: base, then what each payload has for it.
void merge_block(std::span<const ByteView> payloads, std::size_t* at, std::size_t block, const float* base,
                 float divide, std::span<float> out) {
  bool started = base != nullptr;
  if (base && base != out.data()) std::copy_n(base, out.size(), out.data());
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    if (!is_sent(payloads[p].data(), block)) continue;
    const std::uint8_t* values = payloads[p].data() + at[p];
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float v = wire::get<float>(values + 4 * i);
      out[i] = started ? out[i] + v : 0.0F + v;
    }
    at[p] += 4 * out.size();
    started = true;
  }
  if (!started) std::fill(out.begin(), out.end(), 0.0F);
  if (divide != 1.0F)
    for (float& v : out) v /= divide;
}

void merge_block_fast(std::span<const ByteView> payloads, std::size_t* at, std::size_t block,
                      const float* base, float divide, std::span<float> out) {
  const std::uint8_t* sent[kAtOnce];
  std::size_t senders = 0;
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    if (!is_sent(payloads[p].data(), block)) continue;
    sent[senders++] = payloads[p].data() + at[p];
    at[p] += 4 * out.size();
  }
  if (senders == 0 && base == out.data() && divide == 1.0F) return;
  merge_sent({sent, senders}, base, divide, out);
}

template <auto kMergeBlock>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(blocks_codec, call, payloads, out.size()));
  const float* base = merge.base;
  std::size_t first = 0;
  do {
    const auto now = payloads.subspan(first, std::min(kAtOnce, payloads.size() - first));
    first += now.size();
    std::size_t at[kAtOnce];
    std::fill_n(at, kAtOnce, bitmap_bytes(out.size()));
    const float divide = first == payloads.size() ? merge.divide : 1.0F;
    for (std::size_t b = 0; b < count(out.size()); ++b)
      kMergeBlock(now, at, b, base ? base + b * kBlock : nullptr, divide,
                  out.subspan(b * kBlock, length(out.size(), b)));
    base = out.data();
  } while (first < payloads.size());
  return {};
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "blocks", .laws = kLaws, .bound = bound, .check = check}};
constexpr Impl kImpls[] = {
    {.name = "simd", .usable = codec::with_simd, .encode = encode_fast, .decode = decode<merge_block_fast>},
    {.name = "ref", .usable = codec::always, .encode = encode, .decode = decode<merge_block>}};

}  // namespace
}  // namespace blocks

const Codec blocks_codec = {.id = CodecId::blocks,
                            .name = "blocks",
                            .doc = "blocks of 256 values that are not all zero (Fei et al. 2021)",
                            .params = blocks::kParams,
                            .phases = blocks::kPhases,
                            .traits = {.exact_ledger = true, .contraction = blocks::contraction},
                            .scratch = blocks::scratch,
                            .impls = blocks::kImpls};

}  // namespace tithe
