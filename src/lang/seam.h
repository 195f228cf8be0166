// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of tithe/seam/codec.h's seam, for all programs: Settings::codec says whose they are.
#include <array>
#include <vector>

#include "lang/front/phases.h"
#include "tithe/seam/codec.h"

namespace tithe::lang::seam {

using Bound = std::size_t (*)(const Settings&, std::size_t n);
extern const std::array<Bound, kMostPhases> kBounds;  // of each phase
double contraction(const Settings& settings, std::size_t n);
double error(const Settings& settings, double value, double largest);
bool sends_constants(const Settings& settings);
std::size_t scratch(const Settings& settings, std::size_t n);

// The Impl that runs a program where prepare() was asked for it, and the interpreter's. `combines`, `pairs`: whether a
// phase does, and whether it is a list of indices and values.
std::vector<Impl> impls(bool combines, bool pairs);

}  // namespace tithe::lang::seam
