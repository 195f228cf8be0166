// SPDX-License-Identifier: Apache-2.0
#pragma once
// The system's C++ compiler: finds it, identifies it, and runs it without a shell.
#include <cstdint>
#include <string>

#include "tithe/status.h"

namespace tithe::lang {

struct Compiler {
  std::string path;
  std::uint64_t key = 0;  // hash of the compiler and of its flags
};

// The compiler that TITHE_CXX names, or else the first of c++, g++, clang++. kUnsupported: there is none, or
// TITHE_CXX excludes it.
Result<Compiler> find_compiler();

// Compiles the text to a sealed (seal.h) shared object in a new file in `folder`; returns its name, which ends in
// .new. Removes all other files that it writes.
//   kUnsupported  the compiler rejects the text; with its message
//   kIo           the folder is not writable; with the reason
Result<std::string> compile_cpp(const Compiler& compiler, const std::string& text,
                                const std::string& target_flag, const std::string& folder);

}  // namespace tithe::lang
