// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs for judging one tensor by itself: latency and rate between two ranks of different hosts, and the measured
// times of its codec. Used by policies of this kind (policy_secopa.cc, policy_dragonn.cc).
#include "advisor/planner/plan_search.h"

namespace tithe::planner {

struct TensorCosts {
  int ranks = 1;
  Seconds latency = 0;          // of a message
  double bytes_per_second = 1;  // a rank's share of its host's link

  explicit TensorCosts(const PlanQuery& query);
  Seconds send(double bytes) const { return latency + bytes / bytes_per_second; }
};

// The expected size of a payload of n gradient values.
double payload_bytes(const PlanQuery& query, const Spec& spec, double n);
// check() has verified that they are known
const sim::CodecCosts& codec_costs(const PlanQuery& query, const Spec& spec);

}  // namespace tithe::planner
