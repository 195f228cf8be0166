// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe simulate --every H --fragments P --delay D`, and what `tithe plan` has of it: the mean iteration of
// tithe.torch.LocalSteps after its dense start.
//
//   exchange   each fragment's is simulated by itself, with all its tensors ready at once and nothing computing beside
//   hidden     up to the computing of D iterations; the rest is waited for, once in H
#include <span>
#include <string>

#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {

void add_windows(CLI::App& app, SimulateArgs& args);
// kInvalid: fragments that do not divide H or are more than tensors, a delay that reaches the next exchange, a trace.
Status check_windows(const SimulateArgs& args);
Status check_fragments(const SimulateArgs& args, const bench::ModelList& model);
// How many tensors each fragment has: runs of them, in order, as even in values as whole tensors allow, as
// tithe.torch.LocalSteps cuts a model.
std::vector<std::size_t> fragments_of(const bench::ModelList& model, std::size_t fragments);
// All but `setting`, `compute` and `exchange` are means over the H iterations of a window.
Result<Answer> simulate_windows(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                SimulateArgs args);
// The line that says what a step is; empty without --every.
std::string windows_line(const SimulateArgs& args);
// That line, and those that stand under a table.
std::string windows_text(const SimulateArgs& args, std::span<const Answer> answers);

}  // namespace tithe::cli
