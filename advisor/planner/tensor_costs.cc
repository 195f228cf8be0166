// SPDX-License-Identifier: Apache-2.0
#include "advisor/planner/tensor_costs.h"

#include <algorithm>

namespace tithe::planner {

TensorCosts::TensorCosts(const PlanQuery& query) {
  const sim::Cluster& cluster = query.cluster;
  ranks = cluster.world();
  std::vector<int> links;
  // The route from the first host to the last one represents all routes.
  const Rank far = cluster.hosts().back().first_rank;
  latency = cluster.route(0, far, links) + query.costs.post + query.costs.complete;
  bytes_per_second = cluster.rates()[static_cast<std::size_t>(links[0])];
  for (const int l : links)
    bytes_per_second = std::min(bytes_per_second, cluster.rates()[static_cast<std::size_t>(l)]);
  if (far != 0) bytes_per_second /= cluster.hosts()[0].ranks;
}

double payload_bytes(const PlanQuery& query, const Spec& spec, double n) {
  double bytes = 0;
  for (std::size_t phase = 0; phase < spec.codec->phases.size(); ++phase)
    bytes += codec_costs(query, spec).payload_bytes(spec, phase, static_cast<std::size_t>(n));
  return bytes;
}

const sim::CodecCosts& codec_costs(const PlanQuery& query, const Spec& spec) {
  return **query.costs.of(spec);
}

}  // namespace tithe::planner
