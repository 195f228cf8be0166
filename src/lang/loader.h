// SPDX-License-Identifier: Apache-2.0
#pragma once
// A text in the codec language as a codec. Its functions find the program by the settings that they are told
// (Settings::codec), so settings come from defaults(program.codec).
#include <memory>

#include "lang/front/ast.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

inline constexpr std::size_t kMostBytes = 1U << 16;  // of a file
inline constexpr std::string_view kEnding = ".codec";

// A program that was checked, and the codec that it is. Not copied: the codec points into it.
struct LoadedProgram {
  Source source;
  File file;
  std::vector<Combination>
      combinations;  // of its parameters' values, as check() orders them: the last phase of each
  Codec codec;

  // The last phase in these settings.
  const Combination& of(const Settings& settings) const { return combinations[index_of(settings)]; }
  const Combination& of(const Settings& settings, std::size_t phase) const;
  std::size_t index_of(const Settings& settings) const;
  // As claimed; infinity where nothing is, and no constants.
  double contraction_of(const Settings& settings, std::size_t n) const;
  double error_of(const Settings& settings, double value, double largest) const;
  bool sends_constants(const Settings& settings) const;

  std::uint64_t hash = 0;  // of its text
  std::string name, doc;
  std::vector<ParamSpec> params;
  std::vector<std::vector<std::string>> words;
  std::vector<std::vector<std::string_view>> choices;
  std::vector<std::string> docs;
  std::vector<std::vector<Law>> laws;  // of each phase
  std::vector<Phase> phases;
  std::vector<Impl> impls;          // compiled, and the interpreter
  std::vector<std::size_t> counts;  // per parameter: its values; 0: it is real
  // A claim about each combination, if one was made, and where it holds; no `where`: everywhere.
  struct Claimed {
    bool made = false;
    std::vector<Combination> value, where;
  };
  Claimed contraction, error, constants;

  LoadedProgram() = default;
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;
};

// Reads a file as a source. kInvalid: there is none, or it is too large; kIo: the system does not let it be read.
Result<Source> read_source(const std::string& path);

// Lines that are neither empty nor a comment alone.
std::size_t code_lines(const Source& source);

// From text to a program; nullptr where `problems` has any. Its codec is not known to anybody else. Without a name it
// is called by that of its first line and its content's hash.
std::unique_ptr<LoadedProgram> compile(Source source, Problems& problems, std::string_view name = {});

}  // namespace tithe::lang
