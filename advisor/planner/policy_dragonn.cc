// SPDX-License-Identifier: Apache-2.0
// dragonn: DRAGONN's tensor selection (Wang et al., ICML 2022, 3.3). A tensor of d values over K ranks is compressed if
//   T_comp(d) < T_full(d) - T_spr(d)
//   T_full = 2 (K - 1) (latency + d A / (K B))       a ring of uncompressed values, A bytes per value
//   T_spr  = (K - 1) (latency + payload(d) / B)      every payload to every rank
//   T_comp = T_enc(d) + T_dec(d), both as profiled
// T_full - T_spr is (K - 1) (latency + (2 / K) d A / B - payload / B); the paper prints 1 / K.
#include "advisor/planner/policies.h"
#include "advisor/planner/tensor_costs.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  const PlanQuery& q = search.query();
  const TensorCosts at(q);
  const double others = at.ranks - 1;
  Assignment out = search.uniform(search.find(half_spec(), "ring"), kDefaultPartValues);
  for (std::size_t t = 0; t < out.size(); ++t) {
    const Spec* lossy = search.lossy(t);
    if (lossy == nullptr) continue;
    const auto n = static_cast<double>(q.job.tensors[t].n);
    const sim::CodecCosts& codec = codec_costs(q, *lossy);
    const Seconds full = 2 * others * at.send(payload_bytes(q, search.base(t), n) / at.ranks);
    const Seconds sparse = others * at.send(payload_bytes(q, *lossy, n));
    const Seconds compute = codec.encode.at(n) + codec.store.at(n) + others * codec.merge.at(n);
    if (compute < full - sparse) out[t] = {search.find(*lossy, "gather"), kDefaultPartValues, false};
  }
  return out;
}

}  // namespace

const Policy dragonn_policy = {.name = "dragonn", .argument = {}, .decide = decide};

}  // namespace tithe::planner
