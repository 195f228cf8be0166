// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe plan --sharded`: the codec of gradients and that of weights for which a fully sharded step is shortest.
#include <span>

#include "plan/allowance.h"
#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {

// Simulates all pairs. Without permission, gradients are sent as bf16, and weights without loss. An allowance for keys
// "weights*" is for weights, one without a pattern for gradients. Codecs that would keep a residual are refused; those
// that `study` allows are left out instead.
Result<Report> plan_sharded(const Scene& scene, const SimulateArgs& args, std::span<const Allowance> allowed,
                            std::span<const Allowance> study);

}  // namespace tithe::cli
