// SPDX-License-Identifier: Apache-2.0
// fp32: all values uncompressed, with the strategy that has the best estimate. The reference for compression if
// nothing else is known.
#include "advisor/planner/policies.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  Assignment out = search.best_uniform(uncompressed_spec());
  const int small = search.find(uncompressed_spec(), "server");
  for (Decision& d : out)
    if (d.grouped) d.option = small;
  return out;
}

}  // namespace

const Policy fp32_policy = {.name = "fp32", .argument = {}, .decide = decide};

}  // namespace tithe::planner
