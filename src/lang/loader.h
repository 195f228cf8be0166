// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file in the codec language as a codec, like those of codecs.def but for its name and its id:
//
//   name   that of its `codec` line and its content's hash: onebit@5f0c3a91b2d4. So ranks with different files have
//          different plans, and two files of one name are two codecs
//   id     from the hash, kFirstLoadedId .. 65535
//   once   the same content is loaded once, whatever the path; loaded codecs stay for ever. Threads may load at a time
//
//   kInvalid      no such file, or a too large one; what is wrong with it, line by line (lang/front/source.h)
//   kIo           the system does not let it be read
//   kUnsupported  two contents with one id
//
// A process has room for kSlots programs (lang/slots.h).
#include <memory>

#include "lang/front/ast.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

inline constexpr std::uint16_t kFirstLoadedId = 0xf000;
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
  // As claimed; infinity where nothing is.
  double contraction_of(const Settings& settings, std::size_t n) const;

  std::string name, doc;
  std::vector<ParamSpec> params;
  std::vector<std::vector<std::string>> words;
  std::vector<std::vector<std::string_view>> choices;
  std::vector<std::string> docs;
  std::vector<std::vector<Law>> laws;  // of each phase
  std::vector<Phase> phases;
  std::vector<Impl> impls;                // compiled, and the interpreter
  std::vector<std::size_t> counts;        // per parameter: its values; 0: it is real
  std::vector<Combination> contractions;  // what is claimed of each combination; none: nothing is

  LoadedProgram() = default;
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;
};

// Reads a file as a source.
Result<Source> read_source(const std::string& path);

// Lines that are neither empty nor a comment alone.
std::size_t code_lines(const Source& source);

// From text to a program; nullptr where `problems` has any. Its codec is not known to anybody else.
std::unique_ptr<LoadedProgram> compile(Source source, Problems& problems);

// Whether a spec names a file and not a codec: it has a slash, or the language's ending.
bool is_file(std::string_view codec);

Result<const LoadedProgram*> load(const std::string& path);

// The program that a codec was made of; nullptr: it was loaded from no file.
const LoadedProgram* program_of(const Codec& codec);

}  // namespace tithe::lang
