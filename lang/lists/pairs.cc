// SPDX-License-Identifier: Apache-2.0
#include "lang/lists/pairs.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/largest.h"
#include "codec/shared/sparse/select_fast.h"
#include "lang/lists/indices_fast.h"
#include "lang/run/walk.h"

namespace tithe::lang {

namespace {

bool is_selected(const Checked& p, int k) { return p.nodes[static_cast<std::size_t>(k)].op == Op::kTaken; }
bool is_zero(const Checked& p, int k) {
  const Node& n = p.nodes[static_cast<std::size_t>(k)];
  return n.op == Op::kConst && n.number == 0;
}
bool is_nonzero_test(const Checked& p, int k) {
  const Node& n = p.nodes[static_cast<std::size_t>(k)];
  return n.op == Op::kNotEqual && is_selected(p, n.in[0]) && is_zero(p, n.in[1]);
}
// The threshold in abs(x) >= T, or kNone.
int threshold_of(const Checked& p, int k) {
  const Node& n = p.nodes[static_cast<std::size_t>(k)];
  if (n.op != Op::kLessEqual) return kNone;
  const Node& size = p.nodes[static_cast<std::size_t>(n.in[1])];
  const Node& least = p.nodes[static_cast<std::size_t>(n.in[0])];
  const bool known = least.type == Type::kF32 && (least.stage == Stage::kPlan || least.op == Op::kThreshold);
  return known && size.op == Op::kAbs && is_selected(p, size.in[0]) ? n.in[0] : kNone;
}

// A ratio that selects exactly k of n values, for functions that take a ratio.
double ratio_of(std::size_t k, std::size_t n) {
  return (static_cast<double>(k) - 0.5) / static_cast<double>(n);
}

struct Sampled {
  select::Sample sample;
  double ratio = 0;
};
Sampled sampled(const Combination& of, int least, const Settings& settings, std::size_t n) {
  const Node& node = of.program.nodes[static_cast<std::size_t>(least)];
  if (node.op != Op::kThreshold) return {};
  const double ratio = plan_value(of, node.in[0], settings, n);
  const double share = plan_value(of, node.in[1], settings, n);
  return {.sample = select::plan_sample(n, ratio, share), .ratio = ratio};
}

select::Layout lists_of(const PairsLimits& limits, const Sampled& from, std::size_t n) {
  if (limits.most >= n) return select::layout_of_all(n, from.sample);  // encode_all
  return select::layout(n, std::max(limits.most, 2 * limits.keep), from.sample);
}

// Every value may be sent. The indices of each segment are written to the payload at once. The values are written at
// the end, because their offset depends on the number of indices.
Encoded encode_all(std::uint32_t least, const EncodeInput& in, const select::Lists& lists, Bytes out) {
  std::uint8_t* const to = out.data() + sparse::kHead;
  std::size_t count = 0;
  std::uint32_t peak = 0;
  for (std::size_t start = 0; start < in.n; start += select::kSegment) {
    const std::size_t length = std::min(select::kSegment, in.n - start);
    const select::Found found = select::collect(in, start, length, least, lists.index, lists.value + count);
    std::memcpy(to + 4 * count, lists.index, 4 * found.count);
    count += found.count;
    peak = std::max(peak, found.peak);
  }
  std::memcpy(to + 4 * count, lists.value, 4 * count);
  wire::put(out.data(), static_cast<std::uint32_t>(count));
  return {.bytes = sparse::bytes(count), .finite = peak < sparse::kFirstNonFinite};
}

std::size_t own_scratch(const Combination& of, const Settings& settings, std::size_t n,
                        const PairsLimits& limits) {
  const PairsPlan plan = plan_pairs(of.program);
  if (plan.kind == PairsKind::kOther || limits.most == 0) return 0;
  if (plan.kind == PairsKind::kLargest) return largest::scratch(ratio_of(limits.most, n), n);
  return lists_of(limits, sampled(of, plan.least, settings, n), n).bytes();
}

}  // namespace

// Recognises a selection that the library's kernels implement.
PairsPlan plan_pairs(const Checked& p) {
  if (!p.sends_pairs || p.pairs.slots != kNone) return {};
  const int where = p.pairs.where;
  const Node& n = p.nodes[static_cast<std::size_t>(where)];
  if (is_nonzero_test(p, where) && p.pairs.most != kNone && p.pairs.keep == kNone)
    return {.kind = PairsKind::kLargest};
  int least = threshold_of(p, where);
  if (least != kNone && p.nodes[static_cast<std::size_t>(least)].range.low <= 0) least = kNone;
  if (n.op == Op::kBitAnd && n.type == Type::kBool)
    for (const std::size_t k : {0, 1})
      if (is_nonzero_test(p, n.in[k])) least = threshold_of(p, n.in[1 - k]);
  if (least == kNone) return {};
  return {.kind = PairsKind::kThreshold, .least = least};
}

std::size_t plain_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  return own_scratch(of, settings, n, limits_of(of, settings, n));
}

std::size_t list_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  if (of.program.sends_values) return 0;
  if (plan_pairs(of.program).kind == PairsKind::kOther) return walk_bytes(of, settings, n);
  if (of.program.sends_indices) return indices_scratch(of, settings, n);
  const PairsLimits limits = limits_of(of, settings, n);
  return sparse::scratch(sparse::form_of(settings, of.form), own_scratch(of, settings, n, limits),
                         limits.most);
}

Result<Encoded> encode_pairs_as(const Combination& of, std::string_view name, const Call& call,
                                const EncodeInput& in, Bytes out,
                                Result<Encoded> (*plain)(const Call&, const EncodeInput&, Bytes)) {
  const PairsLimits limits = limits_of(of, call.settings, in.n);
  if (plan_pairs(of.program).kind == PairsKind::kOther || in.n == 0 || limits.most == 0)
    return encode(of, name, call, in, out);
  TITHE_TRY(sparse::check_values(name, in.n));
  const sparse::Form form = sparse::form_of(call.settings, of.form);
  TITHE_TRY(codec::check_room(name, out.size(), sparse::bound(form, limits.most, in.n)));
  TITHE_TRY(codec::check_scratch(name, call.scratch.size(), list_scratch(of, call.settings, in.n)));
  if (form.plain()) return plain(call, in, out);
  return sparse::encode_packed(call, of.form, in, own_scratch(of, call.settings, in.n, limits), plain, out);
}

Status decode_pairs(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  for (const ByteView p : payloads) TITHE_TRY(check(of, name, call, out.size(), p));
  sparse::decode_simd(payloads, merge, out);
  return {};
}

Result<Encoded> encode_pairs(const Combination& of, const Call& call, const EncodeInput& in, Bytes out) {
  const PairsPlan plan = plan_pairs(of.program);
  const PairsLimits limits = limits_of(of, call.settings, in.n);
  if (plan.kind == PairsKind::kLargest)
    return largest::choose_simd(call, ratio_of(limits.most, in.n), in, out);
  const Sampled from = sampled(of, plan.least, call.settings, in.n);
  const select::Lists lists = lists_of(limits, from, in.n).at(call.scratch);
  std::uint32_t least = 0;
  if (from.ratio > 0) {
    least = select::threshold_simd(from.sample, key_of(call, call.seed),
                                   select::threshold_rank(from.sample, from.ratio), in, lists.work);
  } else {
    const float threshold = plan_float(of, plan.least, call.settings, in.n);
    least = threshold > 0 ? std::max<std::uint32_t>(1, sparse::magnitude(threshold)) : 1;
  }
  if (limits.most >= in.n) return encode_all(least, in, lists, out);
  return select::gather(in, least, limits.keep, limits.most, lists, out).encoded;
}

}  // namespace tithe::lang
