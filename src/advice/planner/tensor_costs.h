// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs to judge a tensor by itself: the latency and the rate between two ranks of different hosts, and the times
// of its codec, from measured curves. For policies that do so (policy_secopa.cc, policy_dragonn.cc).
#include "advice/planner/plan_search.h"

namespace tithe::planner {

struct TensorCosts {
  int ranks = 1;
  Seconds latency = 0;          // of a message
  double bytes_per_second = 1;  // that a rank has of its host's link

  explicit TensorCosts(const PlanQuery& query);
  Seconds send(double bytes) const { return latency + bytes / bytes_per_second; }
};

// Bytes of a payload of n values, as is expected of a gradient.
double payload_bytes(const PlanQuery& query, const Spec& spec, double n);
const sim::CodecCosts& codec_costs(const PlanQuery& query, const Spec& spec);  // that check() has seen

}  // namespace tithe::planner
