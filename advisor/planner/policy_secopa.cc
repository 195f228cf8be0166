// SPDX-License-Identifier: Apache-2.0
// secopa: HiPress' selective compression and partitioning (Bai et al., SOSP 2021, 3.3). A tensor of m bytes in K
// partitions, over N ranks, where r is the compressed share of its bytes:
//   raw         a T_send(m / K)                                               (1)
//   compressed  a T_send(r m / K) + b T_enc(m / K) + c T_dec(m / K)           (2)
//   ring        a = 2 (N - 1), b = N, c = N
//   server      a = 2 (N - 1), b = K, c = N   (each rank is one, as they measured)
// The tensor is compressed if the minimum of (2) over K = 1..N and both strategies is below the minimum of (1).
//
// Differences from the public code: T_dec depends on the decoded values, not on the received bytes; the curves are
// measured, not fixed. Since (1) has its minimum at the largest K for every tensor, K sets no part size here: the
// strategies cut each part into N chunks anyway.
#include <limits>

#include "advisor/planner/policies.h"
#include "advisor/planner/tensor_costs.h"

namespace tithe::planner {
namespace {

struct Cheapest {
  Seconds seconds = std::numeric_limits<double>::infinity();
  const char* strategy = "server";
};

Cheapest cheapest(const PlanQuery& q, const TensorCosts& at, const Spec& spec, double n, bool compressed) {
  const sim::CodecCosts& codec = codec_costs(q, spec);
  const double ranks = at.ranks, a = 2 * (ranks - 1);
  Cheapest best;
  for (const char* strategy : {"server", "ring"})
    for (int k = 1; k <= at.ranks; ++k) {
      const double values = std::max(1.0, n / k);
      Seconds t = a * at.send(payload_bytes(q, spec, values));
      if (compressed) {
        const double encodes = strategy == std::string_view("ring") ? ranks : k;
        t += encodes * codec.encode.at(values) + ranks * codec.merge.at(values);
      }
      if (t < best.seconds) best = {t, strategy};
    }
  return best;
}

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  const PlanQuery& q = search.query();
  const TensorCosts at(q);
  Assignment out = search.uniform(search.find(half_spec(), "server"), kDefaultPartValues);
  for (std::size_t t = 0; t < out.size(); ++t) {
    const auto n = static_cast<double>(q.job.tensors[t].n);
    const Cheapest uncompressed = cheapest(q, at, search.base(t), n, false);
    if (!out[t].grouped) out[t].option = search.find(search.base(t), uncompressed.strategy);
    const Spec* lossy = search.lossy(t);
    if (lossy == nullptr) continue;
    if (const Cheapest small = cheapest(q, at, *lossy, n, true); small.seconds < uncompressed.seconds)
      out[t] = {search.find(*lossy, small.strategy), kDefaultPartValues, false};
  }
  return out;
}

}  // namespace

const Policy secopa_policy = {.name = "secopa", .argument = {}, .decide = decide};

}  // namespace tithe::planner
