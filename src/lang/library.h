// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs of codecs/ that are codecs of the library, TITHE_CODEC_PROGRAM in tithe/codecs.def, and twins of codecs in
// C++ (twin.h). The build holds their text (cmake/programs.cmake), and what was compiled of the former for all their
// settings (codecs/emit_programs.cc), so that none of these needs a compiler where it runs.
#include <span>
#include <string_view>

#include "lang/loader.h"

namespace tithe::lang {

struct ProgramText {
  std::string_view name;
  std::string_view text;
};
std::span<const ProgramText> program_texts();
std::span<const ProgramText> twin_texts();

// The codec of this name, which stays for ever, with what was compiled of it. There is a text of that name,
// of either kind.
const LoadedProgram& library_program(std::string_view name);

}  // namespace tithe::lang
