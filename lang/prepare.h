// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a loaded program runs: by the interpreter, by the library's kernels, or as compiled code.
#include <string>

#include "lang/loader.h"

namespace tithe::lang {

// Prepares the fastest implementation of these settings: objects linked into the library, objects from the cache, or
// objects compiled now. If none is available, the interpreter runs the program. Thread-safe.
void prepare(const LoadedProgram& program, const Settings& settings);

// True if every phase was compiled into the library or runs on the library's kernels for lists.
bool is_built_in(const LoadedProgram& program, const Settings& settings);

// One line, such as "compiled for avx3, from the cache" or "interpreted: there is no compiler here (c++, g++,
// clang++)".
std::string how_it_runs(const LoadedProgram& program, const Settings& settings);

}  // namespace tithe::lang
