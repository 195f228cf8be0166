// SPDX-License-Identifier: Apache-2.0
#pragma once
// A policy decides the codec and strategy of each tensor of a query. PlanSearch has the options and their estimates.
//
// Every policy groups small tensors in the same way and sends uncompressed tensors as bf16, or as fp32 if only that is
// allowed. So two policies differ only in the tensors that they compress. No policy gives a tensor a codec that the
// user has not allowed for it.
#include <span>
#include <string_view>

#include "advisor/planner/plan_search.h"

namespace tithe::planner {

struct Policy {
  std::string_view name;
  std::string_view argument;  // the argument after the name and a colon; empty: none
  Result<Assignment> (*decide)(PlanSearch& search, std::string_view argument);
};

std::span<const Policy* const> all_policies();  // in the order of policies.def
// Parses "timeline" or "threshold:1MB". kInvalid for an unknown name, with the nearest one, and for a wrong argument.
Result<const Policy*> find_policy(std::string_view text, std::string_view& argument);

inline constexpr double kAsShort = 1.0005;  // a step up to this factor longer counts as equal
// Removes compression from buckets, first to last, while the estimated step is at most kAsShort times as long.
// Payloads that are followed by an idle period of the links gain nothing from compression.
Assignment less_compressed(PlanSearch& search, Assignment assignment);

#define TITHE_POLICY(name) extern const Policy name##_policy;
#include "advisor/planner/policies.def"
#undef TITHE_POLICY

}  // namespace tithe::planner
