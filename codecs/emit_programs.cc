// SPDX-License-Identifier: Apache-2.0
// Run by the build: the programs of this folder as C++, phase by phase, in the settings that programs.def names, for
// the levels that this kind of processor has. emit_programs FROM TO LEVEL...; writes TO/NAME_LEVEL.cc for each of them,
// and TO/built_in.cc.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "lang/cpp/emit_cpp.h"
#include "lang/cpp/object_cache.h"
#include "lang/loader.h"
#include "tithe/seam/catalogue.h"

namespace tithe::lang {

std::span<const BuiltIn> built_in() { return {}; }  // they are about to be made

namespace {

struct Program {
  const char* file;
  const char* settings;
};
constexpr Program kPrograms[] = {
#define TITHE_PROGRAM(file, settings, spec) {#file, settings},
#include "programs.def"
#undef TITHE_PROGRAM
};

// What is there already stays, so that nothing is compiled again.
void write(const std::string& path, const std::string& text) {
  std::ifstream before(path, std::ios::binary);
  if (std::string(std::istreambuf_iterator<char>(before), {}) != text)
    std::ofstream(path, std::ios::binary) << text;
}

int emit(const std::string& from, const std::string& to, std::span<char*> levels) {
  std::map<std::string, std::vector<CppBody>> all;
  for (const Program& p : kPrograms) {
    std::vector<CppBody>& bodies = all[p.file];
    const std::string path = from + "/" + p.file + std::string(kEnding);
    const Result<Spec> spec = parse_spec(path + (*p.settings == 0 ? "" : ":") + p.settings);
    if (!spec.ok()) {
      std::cerr << spec.status().what() << "\n";
      return 1;
    }
    for (std::size_t phase = 0; phase < spec->codec->phases.size(); ++phase) {
      const Combination& of = spec->codec->program->of(spec->settings, phase);
      if (by_kernels(of) || only_interpreted(of.program) != nullptr) continue;
      CppBody body = emit_cpp(of.program, of.schedule);
      const auto same = [&](const CppBody& b) { return b.key == body.key; };
      if (std::none_of(bodies.begin(), bodies.end(), same)) bodies.push_back(std::move(body));
    }
  }
  std::string declared, listed;
  for (const auto& [name, bodies] : all)
    for (const char* level : levels) {
      const std::string symbol =
          fmt::format("program_of_tithe_{}_{}", name, level);  // not shown: cmake/shared.map
      write(fmt::format("{}/{}_{}.cc", to, name, level), cpp_file(bodies, symbol));
      declared += fmt::format("extern \"C\" const Object {}[];\n", symbol);
      listed += fmt::format("    {{Level{{{}}}, {}}},\n", level, symbol);
    }
  write(to + "/built_in.cc", fmt::format("// Made by codecs/emit_programs.cc.\n#include "
                                         "\"lang/cpp/object_cache.h\"\n\nnamespace tithe::lang {{\n"
                                         "{}\nstd::span<const BuiltIn> built_in() {{\n  static const BuiltIn "
                                         "kAll[] = {{\n{}  }};\n  return kAll;\n}}\n\n"
                                         "}}  // namespace tithe::lang\n",
                                         declared, listed));
  return 0;
}

}  // namespace
}  // namespace tithe::lang

int main(int count, char** args) {
  if (count < 4) return 2;
  return tithe::lang::emit(args[1], args[2], std::span(args + 3, static_cast<std::size_t>(count - 3)));
}
