// SPDX-License-Identifier: Apache-2.0
#pragma once
// Turns a program's text into a Codec. The codec's functions find the program through Settings::codec, so settings
// must come from defaults(program.codec).
#include <memory>

#include "lang/front/ast.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

inline constexpr std::size_t kMaxBytes = 1U << 16;  // maximum size of a file
inline constexpr std::string_view kEnding = ".codec";

// A checked program and its codec. Not copyable: the codec points into it.
struct LoadedProgram {
  Source source;
  File file;
  // Indexed by index_of(): the last phase of each combination, which owns the others.
  std::vector<Combination> combinations;
  Codec codec;

  // The last phase in these settings.
  const Combination& of(const Settings& settings) const { return combinations[index_of(settings)]; }
  const Combination& of(const Settings& settings, std::size_t phase) const;
  std::size_t index_of(const Settings& settings) const;
  // From the author's claims. Without a claim: infinity, and false for constants.
  double contraction_of(const Settings& settings, std::size_t n) const;
  double error_of(const Settings& settings, double value, double largest) const;
  bool sends_constants(const Settings& settings) const;

  std::uint64_t hash = 0;  // of the text
  std::string name, doc;
  std::vector<ParamSpec> params;
  std::vector<std::vector<std::string>> words;
  std::vector<std::vector<std::string_view>> choices;
  std::vector<std::vector<Law>> laws;  // per phase
  std::vector<Phase> phases;
  std::vector<Impl> impls;          // compiled code, and the interpreter
  std::vector<std::size_t> counts;  // per parameter: number of values; 0: a real parameter
  // A claim and its condition, per combination; if `where` is empty, the claim holds everywhere.
  struct Claimed {
    bool made = false;
    std::vector<Combination> value, where;
  };
  Claimed contraction, error, constants;

  LoadedProgram() = default;
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;
};

// Reads a file. kInvalid: it does not exist or is too large; kIo: the system refuses to open or read it.
Result<Source> read_source(const std::string& path);

// Counts the lines that contain code.
std::size_t code_lines(const Source& source);

// Compiles a text; returns nullptr if `problems` has any. The codec is not registered anywhere. Without a `name`, the
// codec is named after its first line and the hash of its text.
std::unique_ptr<LoadedProgram> compile(Source source, Problems& problems, std::string_view name = {});

}  // namespace tithe::lang
