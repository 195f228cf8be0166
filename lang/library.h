// SPDX-License-Identifier: Apache-2.0
#pragma once
// The programs of codecs/: the codecs of the library that are programs (TITHE_CODEC_PROGRAM in tithe/codecs.def), and
// the programs from which GPU kernels of C++ codecs are generated (kernel_source.h). The library contains the text of
// both (cmake/programs.cmake). The former are also compiled into the library in all their settings
// (codecs/emit_programs.cc), so they need no compiler at run time.
#include <span>
#include <string_view>

#include "lang/loader.h"

namespace tithe::lang {

struct ProgramText {
  std::string_view name;
  std::string_view text;
};
std::span<const ProgramText> program_texts();
std::span<const ProgramText> kernel_texts();

// The codec of this name with its compiled objects; it lives as long as the process. A program of that name must
// exist.
const LoadedProgram& library_program(std::string_view name);

}  // namespace tithe::lang
