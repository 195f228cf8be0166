// SPDX-License-Identifier: Apache-2.0
// topk: the k values of largest magnitude, exactly; the lower index first among equals. Zeros are never sent.
//
// Layout   codec/sparse.h, at most k = max(1, ceil(ratio * n)) pairs
#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/select.h"
#include "codec/sparse.h"

namespace tithe {
namespace topk {
namespace {

enum Param : std::size_t { kRatio };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"}};

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t bound(const Settings& s, std::size_t n) { return sparse::bytes(most(s, n)); }

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return sparse::check("topk", n, most(s, n), payload);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  const std::vector<float> values = select::taken(in);
  std::vector<std::uint32_t> picked;
  for (std::size_t i = 0; i < in.n; ++i)
    if (sparse::magnitude(values[i]) != 0) picked.push_back(static_cast<std::uint32_t>(i));
  select::keep_largest(most(call.settings, in.n), values, picked);
  return select::send_ref(in, values, picked, out);
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(topk_codec, call, payloads, out.size()));
  sparse::decode_ref(payloads, merge, out);
  return {};
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "pairs", .laws = kLaws, .bound = bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "ref", .usable = codec::always, .encode = encode, .decode = decode}};

}  // namespace
}  // namespace topk

const Codec topk_codec = {.id = CodecId::topk,
                          .name = "topk",
                          .doc = "the largest values, chosen exactly (Aji and Heafield 2017)",
                          .params = topk::kParams,
                          .phases = topk::kPhases,
                          .traits = {.exact_ledger = true, .selects = true},
                          .scratch = codec::no_scratch,
                          .impls = topk::kImpls};

}  // namespace tithe
