// SPDX-License-Identifier: Apache-2.0
#pragma once
// The system's compiler, where there is one: found, told apart, and run without a shell.
#include <cstdint>
#include <string>

#include "tithe/status.h"

namespace tithe::lang {

struct Compiler {
  std::string path;
  std::uint64_t key = 0;  // of the program that it is, and of the flags that it is given
};

// As TITHE_CXX says, else the first of c++, g++, clang++. kUnsupported: there is none, or none is wanted.
Result<Compiler> find_compiler();

// As TITHE_CACHE says, else tithe in $XDG_CACHE_HOME or ~/.cache. kUnsupported: there is no place.
Result<std::string> cache_folder();

// Makes `folder`/`name`.new, a shared object, of the text. What else is written is removed.
Status compile_cpp(const Compiler& compiler, const std::string& text, const std::string& target_flag,
                   const std::string& folder, const std::string& name);

}  // namespace tithe::lang
