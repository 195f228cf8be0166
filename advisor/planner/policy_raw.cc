// SPDX-License-Identifier: Apache-2.0
// raw: all values uncompressed as fp32, with the strategy that has the best estimate. The reference for compression if
// nothing else is known.
#include "advisor/planner/policies.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  Assignment out = search.best_uniform(*parse_spec("fp32"));
  const int small = search.find(*parse_spec("fp32"), "server");
  for (Decision& d : out)
    if (d.grouped) d.option = small;
  return out;
}

}  // namespace

const Policy raw_policy = {.name = "raw", .argument = {}, .decide = decide};

}  // namespace tithe::planner
