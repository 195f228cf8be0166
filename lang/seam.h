// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codec functions (tithe/seam/codec.h) that all programs share; Settings::codec identifies the program.
#include <array>
#include <vector>

#include "lang/front/phases.h"
#include "tithe/seam/codec.h"

namespace tithe::lang::seam {

using Bound = std::size_t (*)(const Settings&, std::size_t n);
extern const std::array<Bound, kMaxPhases> kBounds;  // per phase
double contraction(const Settings& settings, std::size_t n);
double error(const Settings& settings, double value, double largest);
bool sends_constants(const Settings& settings);
std::size_t scratch(const Settings& settings, std::size_t n);

// The Impl for compiled programs (see prepare()) and the interpreter's. `combines`: some phase combines payloads;
// `pairs`: the program sends a list of indices and values.
std::vector<Impl> impls(bool combines, bool pairs);

}  // namespace tithe::lang::seam
