// SPDX-License-Identifier: Apache-2.0
#pragma once
// A policy decides codec and strategy of each tensor of a query. PlanSearch has the options and their estimates.
//
//   compared   every policy groups small tensors alike and sends what it does not compress as bf16, or fp32 where that
//              alone is allowed: what differs between two policies is what they compress
//   allowed    no policy gives a tensor a codec that its user did not allow
#include <span>
#include <string_view>

#include "advice/planner/plan_search.h"

namespace tithe::planner {

struct Policy {
  std::string_view name;
  std::string_view doc;       // one line
  std::string_view argument;  // what stands behind the name and a colon; empty: nothing does
  Result<Assignment> (*decide)(PlanSearch& search, std::string_view argument);
};

std::span<const Policy* const> all_policies();  // in the order of policies.def
// "timeline", "threshold:1MB". kInvalid for an unknown name, with the nearest, and for an argument that is none of its.
Result<const Policy*> find_policy(std::string_view text, std::string_view& argument);

inline constexpr double kAsShort = 1.0005;  // of a step: what is no longer than that takes as long
// The same, but what is sent before a gap of the links is not compressed, bucket by bucket from the first on, where the
// estimated step stays as short.
Assignment less_compressed(PlanSearch& search, Assignment assignment);

#define TITHE_POLICY(name) extern const Policy name##_policy;
#include "advice/planner/policies.def"
#undef TITHE_POLICY

}  // namespace tithe::planner
