// SPDX-License-Identifier: Apache-2.0
#include "lang/library.h"

#include <fmt/format.h>

#include <algorithm>

#include "lang/cpp/object_cache.h"

namespace tithe::lang {

namespace {

// Connects the objects that were linked into the library with the phases that they implement.
void attach(const BuiltIn& built, LoadedProgram& program) {
  const std::size_t phases = program.phases.size();
  for (std::size_t c = 0; c < program.combinations.size(); ++c) {
    const Combination* phase = &program.combinations[c];
    for (std::size_t p = phases; p-- > 0; phase = phase->before.get())
      if (const int object = built.object_of[c * phases + p]; object >= 0)
        phase->running->built_in[static_cast<std::size_t>(built.level)] = &built.objects[object];
  }
}

}  // namespace

const LoadedProgram& library_program(std::string_view name) {
  const auto named = [&](const ProgramText& t) { return t.name == name; };
  const std::span<const ProgramText> own = program_texts(), for_kernels = kernel_texts();
  auto text = std::find_if(own.begin(), own.end(), named);
  if (text == own.end()) {
    text = std::find_if(for_kernels.begin(), for_kernels.end(), named);
    TITHE_ASSERT(text != for_kernels.end());
  }
  Problems problems;
  std::unique_ptr<LoadedProgram> program = compile(
      {.name = fmt::format("codecs/{}{}", name, kEnding), .text = std::string(text->text)}, problems, name);
  TITHE_ASSERT(program != nullptr);
  for (const BuiltIn& built : built_in())
    if (built.library == name) attach(built, *program);
  return *program.release();
}

}  // namespace tithe::lang
