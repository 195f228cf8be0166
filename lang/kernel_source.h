// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program from which a codec's GPU kernels are generated. A codec that is a program uses its own text. A codec in
// C++ has kernels if codecs/programs.def lists a program that writes the same bytes, residuals and values; on the
// host that program is only interpreted, to compare it with the codec.
#include <optional>

#include "lang/loader.h"

namespace tithe::lang {

struct KernelSource {
  const LoadedProgram* program;  // lives as long as the process
  Settings settings;             // the program's own
};

// Empty if the codec has no such program in these settings, or if the codec in C++ and the interpreter differ for
// seeded values on this machine. Thread-safe.
std::optional<KernelSource> kernel_source(const Codec& codec, const Settings& settings);
// The program's settings that correspond to other settings of the same codec, for example those of a schedule.
Settings kernel_settings(const KernelSource& source, const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
