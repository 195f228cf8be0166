// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program that a codec's GPU kernels are generated from. A codec that is a program has its own. A codec in C++ has
// one if codecs/programs.def lists a program that writes the same bytes, residuals and values; on the host that program
// is interpreted only, and never does the codec's work.
#include <optional>

#include "lang/loader.h"

namespace tithe::lang {

struct KernelSource {
  const LoadedProgram* program;  // lives as long as the process
  Settings settings;             // the program's own
};

// Nothing if the codec has no such program in these settings, or if the codec in C++ and the interpreter differ on
// seeded values on this machine. Safe from any thread.
std::optional<KernelSource> kernel_source(const Codec& codec, const Settings& settings);
// The program's settings for other settings of the same codec, as a schedule gives them.
Settings kernel_settings(const KernelSource& source, const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
