// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe simulate --every H --fragments P --delay D`, also used by `tithe plan`: the mean iteration of
// tithe.torch.LocalSteps after its dense start.
//
// Each fragment's exchange is simulated by itself, with all tensors ready at once and no concurrent computation. The
// computation of D iterations hides that much of the exchange; the rest is waited for once in H iterations.
#include <span>
#include <string>

#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {

void add_windows(CLI::App& app, SimulateArgs& args);
// kInvalid: a number of fragments that does not divide H or exceeds the number of tensors, a delay that reaches the
// next exchange, or a trace.
Status check_windows(const SimulateArgs& args);
Status check_fragments(const SimulateArgs& args, const bench::ModelList& model);
// The number of tensors in each fragment: consecutive tensors, as even in values as possible, as tithe.torch.LocalSteps
// cuts a model.
std::vector<std::size_t> fragments_of(const bench::ModelList& model, std::size_t fragments);
// All fields except `setting`, `compute` and `exchange` are means over the H iterations of a window.
Result<Answer> simulate_windows(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                SimulateArgs args);
// The line that defines a step; empty without --every.
std::string windows_line(const SimulateArgs& args);
// That line, and the lines below a table.
std::string windows_text(const SimulateArgs& args, std::span<const Answer> answers);

}  // namespace tithe::cli
