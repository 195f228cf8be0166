// SPDX-License-Identifier: Apache-2.0
#pragma once
// The programs of codecs/ that are codecs of the library (TITHE_CODEC_PROGRAM in tithe/codecs.def), and those that are
// the source of GPU kernels of codecs in C++ (kernel_source.h). The library holds the text of both
// (cmake/programs.cmake). The former are compiled into it in all their settings (codecs/emit_programs.cc), so they need
// no compiler where they run.
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

// The codec of this name, with its compiled objects; it lives as long as the process. A text of that name exists, of
// either kind.
const LoadedProgram& library_program(std::string_view name);

}  // namespace tithe::lang
