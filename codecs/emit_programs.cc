// SPDX-License-Identifier: Apache-2.0
// A build tool: generates C++ for the library's codecs that are programs, for every phase, setting and level of the
// target architecture.
// emit_programs TO LEVEL...  writes TO/NAME_LEVEL.cc for each program and level, and TO/built_in.cc.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "lang/cpp/emit_cpp.h"
#include "lang/cpp/object_cache.h"
#include "lang/library.h"
#include "tithe/seam/catalogue.h"

namespace tithe::lang {

std::span<const BuiltIn> built_in() { return {}; }  // this tool generates them

namespace {

// The generated C++ of one program.
struct Made {
  std::vector<CppBody> bodies;
  std::vector<int> object_of;  // per combination and phase: index of its body

  // The index of a phase's body; -1: the phase is not compiled.
  int add(const Combination& of) {
    if (by_kernels(of) || only_interpreted(of.program) != nullptr) return -1;
    CppBody body = emit_cpp(of.program, of.schedule);
    const auto same = [&](const CppBody& b) { return b.key == body.key; };
    const auto at = std::find_if(bodies.begin(), bodies.end(), same) - bodies.begin();
    if (at == std::ssize(bodies)) bodies.push_back(std::move(body));
    return static_cast<int>(at);
  }
  void add_all(const LoadedProgram& program) {
    const std::size_t phases = program.phases.size();
    object_of.resize(program.combinations.size() * phases);
    for (std::size_t c = 0; c < program.combinations.size(); ++c) {
      const Combination* phase = &program.combinations[c];
      for (std::size_t p = phases; p-- > 0; phase = phase->before.get())
        object_of[c * phases + p] = add(*phase);
    }
  }
};

// Does not touch a file that has this text already, so that it is not compiled again.
void write(const std::string& path, const std::string& text) {
  std::ifstream before(path, std::ios::binary);
  if (std::string(std::istreambuf_iterator<char>(before), {}) != text)
    std::ofstream(path, std::ios::binary) << text;
}

std::string built_in_text(const std::map<std::string, Made>& all, std::span<char*> levels) {
  std::string declared, listed;
  for (const auto& [name, made] : all) {
    declared +=
        fmt::format("constexpr std::int16_t k_{}[] = {{{}}};\n", name, fmt::join(made.object_of, ", "));
    for (const char* level : levels) {
      const std::string symbol = fmt::format("program_of_tithe_{}_{}", name, level);
      declared += fmt::format("extern \"C\" const Object {}[];\n", symbol);
      listed += fmt::format("    {{Level{{{0}}}, {1}, \"{2}\", k_{2}}},\n", level, symbol, name);
    }
  }
  return fmt::format(
      "// Made by codecs/emit_programs.cc.\n#include \"lang/cpp/object_cache.h\"\n\nnamespace tithe::lang "
      "{{\n"
      "{}\nstd::span<const BuiltIn> built_in() {{\n  static const BuiltIn kAll[] = {{\n{}  }};\n"
      "  return kAll;\n}}\n\n}}  // namespace tithe::lang\n",
      declared, listed);
}

int emit(const std::string& to, std::span<char*> levels) {
  std::map<std::string, Made> all;
  for (const ProgramText& own : program_texts())
    all[std::string(own.name)].add_all(*find_codec(own.name)->program);
  for (const auto& [name, made] : all)
    for (const char* level : levels)  // cmake/shared.map hides the symbol
      write(fmt::format("{}/{}_{}.cc", to, name, level),
            cpp_file(made.bodies, fmt::format("program_of_tithe_{}_{}", name, level)));
  write(to + "/built_in.cc", built_in_text(all, levels));
  return 0;
}

}  // namespace
}  // namespace tithe::lang

int main(int count, char** args) {
  if (count < 3) return 2;
  return tithe::lang::emit(args[1], std::span(args + 2, static_cast<std::size_t>(count - 2)));
}
