// SPDX-License-Identifier: Apache-2.0
#pragma once
// The program that a codec in C++ is a twin of: the same bytes, residuals and values (codecs/programs.def). What is
// made of the program, kernels for one, then does the codec's work.
#include <optional>

#include "lang/loader.h"

namespace tithe::lang {

struct Twin {
  const LoadedProgram* program;  // it stays
  Settings settings;             // the program's own
};

// Nothing: the codec has no twin in these settings, or what this machine runs of it does not do what the twin's
// interpreter does on seeded values. A codec that is a program is its own. Any thread may ask.
std::optional<Twin> twin_of(const Codec& codec, const Settings& settings);
// The settings of a twin that was given, where the codec's have changed since: those of a schedule.
Settings twin_settings(const Twin& twin, const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
