// SPDX-License-Identifier: Apache-2.0
#include "advice/planner/tensor_costs.h"

#include <algorithm>

namespace tithe::planner {

TensorCosts::TensorCosts(const Question& question) {
  const sim::Cluster& cluster = question.cluster;
  ranks = cluster.world();
  std::vector<int> links;
  // The way from the first host to the last one stands for all.
  const Rank far = cluster.hosts().back().first_rank;
  latency = cluster.way(0, far, links) + question.costs.post + question.costs.complete;
  bytes_per_second = cluster.rates()[static_cast<std::size_t>(links[0])];
  for (const int l : links)
    bytes_per_second = std::min(bytes_per_second, cluster.rates()[static_cast<std::size_t>(l)]);
  if (far != 0) bytes_per_second /= cluster.hosts()[0].ranks;
}

double payload_bytes(const Question& question, const Spec& spec, double n) {
  double bytes = 0;
  for (std::size_t phase = 0; phase < spec.codec->phases.size(); ++phase)
    bytes += codec_costs(question, spec).payload_bytes(spec, phase, static_cast<std::size_t>(n));
  return bytes;
}

const sim::CodecCosts& codec_costs(const Question& question, const Spec& spec) {
  return **question.costs.of(spec);
}

}  // namespace tithe::planner
