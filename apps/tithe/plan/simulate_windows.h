// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe simulate --every H --fragments P --delay D`: the mean iteration of tithe.torch.LocalSteps after its dense
// start.
//
//   exchange   each fragment's is simulated by itself, with all its tensors ready at once and nothing computing beside
//   hidden     up to the computing of D iterations; the rest is waited for, once in H
#include <span>
#include <string>

#include "simulate_setting.h"

namespace tithe::cli {

// kInvalid: fragments that do not divide H, a delay that reaches the next exchange, a trace.
Status check_windows(const SimulateArgs& args);
// All but `setting`, `compute` and `exchange` are means over the H iterations of a window.
Result<Answer> simulate_windows(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                SimulateArgs args);
// Lines that stand under a table; empty without --every.
std::string windows_text(const SimulateArgs& args, std::span<const Answer> answers);

}  // namespace tithe::cli
