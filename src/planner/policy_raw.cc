// SPDX-License-Identifier: Apache-2.0
// raw: all values as they are, fp32. What compression is compared with where nothing else is known.
#include "planner/policies.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(Board& board, std::string_view /*argument*/) {
  const int raw = board.find(*parse_spec("fp32"), "server");
  Assignment out;
  for (const JobTensor& t : board.question().job.tensors)
    out.push_back({raw, kUsualPartValues, t.n < kUsualMinValues});
  return out;
}

}  // namespace

const Policy raw_policy = {.name = "raw", .doc = "all tensors as fp32", .argument = {}, .decide = decide};

}  // namespace tithe::planner
