// SPDX-License-Identifier: Apache-2.0
#include "codec/qtopk/qtopk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/largest.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe {
namespace qtopk {
namespace {

enum Param : std::size_t { kRatio };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.025, 1e-6, 1, "fraction of the values that is sent", {}, Role::kRatio}};

constexpr std::size_t kBlock = 255;
constexpr std::size_t kHead = 6;
constexpr std::size_t kGroup = 16;          // blocks that decode merges at a time: they stay in the L1 cache
constexpr std::size_t kAtOnce = 64;         // payloads in one pass over the output
constexpr int kShift = 20;                  // bits of a float below its level
constexpr std::uint32_t kTopLevel = 0x7f7;  // the largest that is a finite float
constexpr std::uint32_t kSteps = 127;

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }
std::size_t bytes(std::size_t n, std::size_t count) { return kHead + blocks(n) + 2 * count; }
std::size_t bound(const Settings& s, std::size_t n) { return bytes(n, most(s, n)); }

std::uint32_t level(float v) {
  return std::min((sparse::magnitude(v) + (1U << (kShift - 1))) >> kShift, kTopLevel);
}

// Level 0 represents zero and is not sent.
bool is_sent(std::uint32_t top, float v) { return level(v) != 0 && top - level(v) <= kSteps; }

std::uint8_t code_of(std::uint32_t top, float v) {
  return static_cast<std::uint8_t>((std::bit_cast<std::uint32_t>(v) >> 31 << 7) | (top - level(v)));
}

float value_of(std::uint32_t top, std::uint8_t code) {
  const std::uint32_t sign = std::uint32_t{code} >> 7;
  return std::bit_cast<float>((sign << 31) | ((top - (code & kSteps)) << kShift));
}

struct View {
  View(ByteView payload, std::size_t n)
      : count(wire::get<std::uint32_t>(payload.data())),
        top(wire::get<std::uint16_t>(payload.data() + 4)),
        sent(payload.data() + kHead),
        index(sent + blocks(n)),
        code(index + count) {}
  std::size_t count;
  std::uint32_t top;
  const std::uint8_t* sent;   // per block
  const std::uint8_t* index;  // per value
  const std::uint8_t* code;
};

// True if the indices of each block increase and lie in the block, and are `count` in all.
bool indices_hold(const View& v, std::size_t n) {
  std::size_t at = 0;
  for (std::size_t b = 0; b < blocks(n); ++b) {
    const std::size_t length = std::min(kBlock, n - b * kBlock);
    const std::size_t end = at + v.sent[b];
    if (end > v.count) return false;
    if (end > at && v.index[end - 1] >= length) return false;
    for (std::size_t j = at + 1; j < end; ++j)
      if (v.index[j - 1] >= v.index[j]) return false;
    at = end;
  }
  return at == v.count;
}

// True if some value has the top level, and every level is a finite float other than zero.
bool codes_hold(const View& v) {
  if (v.count == 0) return v.top == 0;
  std::uint32_t lowest = kSteps;
  std::uint32_t highest = 0;
  for (std::size_t j = 0; j < v.count; ++j) {
    lowest = std::min(lowest, v.code[j] & kSteps);
    highest = std::max(highest, v.code[j] & kSteps);
  }
  return lowest == 0 && highest < v.top && v.top <= kTopLevel;
}

// A sent value is off by at most one part in sixteen; a value that is too small for a code is below 2^-15 of the
// largest.
double contraction(const Settings& s, std::size_t n) {
  const auto count = static_cast<double>(n);
  return std::min(1.0, 1 - static_cast<double>(most(s, n)) / count * (1 - 0x1p-8) + (count - 1) * 0x1p-30);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(sparse::check_values("qtopk", n));
  const auto corrupt = [](const std::string& why) { return Status(Code::kCorrupt, "qtopk: " + why); };
  if (payload.size() < kHead)
    return corrupt("payload of " + std::to_string(payload.size()) + " bytes has no head");
  const std::size_t count = wire::get<std::uint32_t>(payload.data());
  if (count > most(call.settings, n))
    return corrupt(std::to_string(count) + " values, at most " + std::to_string(most(call.settings, n)) +
                   " are allowed of " + std::to_string(n));
  TITHE_TRY(codec::check_size("qtopk", payload.size(), bytes(n, count)));
  const View view(payload, n);
  if (!indices_hold(view, n)) return corrupt("indices do not increase within their blocks");
  if (!codes_hold(view)) return corrupt("codes do not fit the top level");
  return {};
}

// Writes the payload for topk's pairs; residual_out becomes the rounding errors.
std::size_t shorten(const sparse::Pairs& pairs, const EncodeInput& in, Bytes out) {
  std::uint32_t top = 0;
  for (std::size_t j = 0; j < pairs.count(); ++j) top = std::max(top, level(pairs.value(j)));
  std::size_t count = 0;
  for (std::size_t j = 0; j < pairs.count(); ++j) count += is_sent(top, pairs.value(j)) ? 1 : 0;
  wire::put(out.data(), static_cast<std::uint32_t>(count));
  wire::put(out.data() + 4, static_cast<std::uint16_t>(top));
  std::uint8_t* sent = out.data() + kHead;
  std::uint8_t* index = sent + blocks(in.n);
  std::uint8_t* code = index + count;
  std::fill(sent, index, std::uint8_t{0});
  for (std::size_t j = 0; j < pairs.count(); ++j) {
    const std::size_t i = pairs.index(j);
    const float v = pairs.value(j);
    float rest = v;
    if (is_sent(top, v)) {
      ++sent[i / kBlock];
      *index++ = static_cast<std::uint8_t>(i % kBlock);
      *code = code_of(top, v);
      rest -= value_of(top, *code++);
    }
    if (in.residual_out) in.residual_out[i] = rest;
  }
  return bytes(in.n, count);
}

// Selects as topk does, then writes two bytes per value.
Result<Encoded> shorten_chosen(largest::Choose choose, const Call& call, const EncodeInput& in, Bytes pairs,
                               Bytes out) {
  TITHE_TRY(sparse::check_values("qtopk", in.n));
  auto chosen = choose(call, call.settings[kRatio], in, pairs);
  if (!chosen.ok()) return chosen;
  chosen->bytes = shorten(sparse::Pairs(pairs), in, out);
  return chosen;
}

std::size_t pair_bytes(const Settings& s, std::size_t n) { return sparse::bytes(most(s, n)); }

Result<Encoded> encode_ref(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("qtopk", out.size(), bound(call.settings, in.n)));
  std::vector<std::uint8_t> pairs(pair_bytes(call.settings, in.n));
  return shorten_chosen(largest::choose_ref, call, in, pairs, out);
}

std::size_t scratch(const Settings& s, std::size_t n) {
  return largest::scratch(s[kRatio], n) + pair_bytes(s, n);
}

Result<Encoded> encode_simd(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("qtopk", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("qtopk", call.scratch.size(), scratch(call.settings, in.n)));
  const Bytes pairs = call.scratch.subspan(largest::scratch(call.settings[kRatio], in.n));
  return shorten_chosen(largest::choose_simd, call, in, pairs, out);
}

// Merges up to kAtOnce checked payloads, `group` blocks at a time: kGroup in the fast decode, all blocks in the
// reference. Each value sees the same additions in the same order.
void add(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out, std::size_t group) {
  std::array<std::size_t, kAtOnce> at{};
  for (std::size_t first = 0; first < blocks(out.size()); first += group) {
    const std::size_t last = std::min(first + group, blocks(out.size()));
    const std::span<float> part =
        out.subspan(first * kBlock, std::min(last * kBlock, out.size()) - first * kBlock);
    codec::begin_sum(codec::merge_from(merge, first * kBlock), part);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const View view(payloads[p], out.size());
      std::size_t j = at[p];
      for (std::size_t b = first; b < last; ++b)
        for (const std::size_t end = j + view.sent[b]; j < end; ++j)
          out[b * kBlock + view.index[j]] += value_of(view.top, view.code[j]);
      at[p] = j;
    }
    codec::end_sum(merge, part);
  }
}

Status merge_all(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                 std::span<float> out, std::size_t group) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  codec::merge_in_groups(kAtOnce, payloads, merge, out,
                         [&](std::span<const ByteView> some, const Merge& step, std::span<float> to) {
                           add(some, step, to, group);
                         });
  return {};
}

Status decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                  std::span<float> out) {
  return merge_all(call, payloads, merge, out, std::max<std::size_t>(1, blocks(out.size())));
}

Status decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                   std::span<float> out) {
  return merge_all(call, payloads, merge, out, kGroup);
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "indices and codes", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd({.encode = encode_simd, .decode = decode_simd, .check = check}),
                           codec::reference({.encode = encode_ref, .decode = decode_ref, .check = check})};

}  // namespace
}  // namespace qtopk

const Codec qtopk_codec = {
    .name = "qtopk",
    .doc = "the largest values at 8 bits, indices within blocks at 8 bits (after Basu et al. 2019)",
    .params = qtopk::kParams,
    .phases = qtopk::kPhases,
    .traits = {.exact_ledger = true, .contraction = qtopk::contraction},
    .scratch = qtopk::scratch,
    .impls = qtopk::kImpls};

}  // namespace tithe
