// SPDX-License-Identifier: Apache-2.0
// bf16: all values in 16 bits. The baseline that anything lossy has to beat.
#include "planner/policies.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(Board& board, std::string_view /*argument*/) {
  return board.uniform(board.find(*parse_spec("bf16"), "server"), kUsualPartValues);
}

}  // namespace

const Policy bf16_policy = {
    .name = "bf16", .doc = "all tensors as bf16: the baseline", .argument = {}, .decide = decide};

}  // namespace tithe::planner
