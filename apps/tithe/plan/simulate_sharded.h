// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe simulate --sharded zero2|zero3`, also used by `tithe plan`: a step of a model under FSDP2, whose ranks own
// parts of all weights (docs/guide/sharded.md).
//
//   - units: the modules under fully_shard(). Tensors belong to the module that their name has up to its first number
//     ("h.11" of "h.11.mlp.c_fc.weight"); all others to the root.
//   - rounds: every reduce-scatter and all-gather is simulated alone, by the engine's programs; equal rounds once.
//     sim/sharded_step.h then places them in the step.
//   - padding: as FSDP2 does, each tensor is cut by rows into equal parts, the last ones padded.
//   - weights: bfloat16. Lossless codecs of weights send a measured number of bits per value; `delta` sends almost
//     nothing in backward, since no weight has changed since forward.
#include <span>
#include <string>

#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {

inline constexpr std::string_view kShardedGradients = "eden:bits=4,scale=unbiased";

void add_sharded(CLI::App& app, SimulateArgs& args);  // without --weights, which a plan chooses
// kInvalid: options that have no meaning for such a model.
Status check_sharded(const SimulateArgs& args);
// Splits a codec "GRADIENTS+WEIGHTS"; without a plus, the weights have the codec `weights`.
void set_weights(Setting& setting, const std::string& weights);
Result<Answer> simulate_sharded(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                const SimulateArgs& args);
// The lines below a table; empty without --sharded.
std::string sharded_text(const SimulateArgs& args, std::span<const Answer> answers);

}  // namespace tithe::cli
