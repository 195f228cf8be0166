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

// Makes a shared object of the text, sealed (seal.h), in a file of `folder` that nobody else writes to: its name,
// which ends in .new. Anything else that is written is removed.
//   kUnsupported  the compiler refuses it, and what it says
//   kIo           nothing can be written there, and why
Result<std::string> compile_cpp(const Compiler& compiler, const std::string& text,
                                const std::string& target_flag, const std::string& folder);

}  // namespace tithe::lang
