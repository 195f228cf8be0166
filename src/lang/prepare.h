// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ways to run a loaded program: the interpreter, the library's kernels, or what its text was compiled to.
#include <string>

#include "lang/loader.h"

namespace tithe::lang {

// Sees to it that these settings of a program run as fast as they can here: compiled in, from the cache, or compiled
// now. Where they cannot, the interpreter runs them. Safe from any thread.
void prepare(const LoadedProgram& program, const Settings& settings);

// True: all phases were compiled with tithe itself, as a codec of the library, or run by its kernels of lists.
bool is_built_in(const LoadedProgram& program, const Settings& settings);

// One line: "compiled for avx3, from the cache", "interpreted: there is no compiler here (c++, g++, clang++)".
std::string how_it_runs(const LoadedProgram& program, const Settings& settings);

}  // namespace tithe::lang
