// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds compiled programs: linked into this build, in the user's cache, or newly compiled.
//
//   private   the cache is a folder that only the user can write to, and so are its files; any other folder is refused
//             with the cure. The file that was checked is the file that is loaded
//   keyed     by the text, the interface, the compiler and the level
//   atomic    a file is renamed to its final name only when it is complete and verified against the interpreter. It
//             ends with a checksum (seal.h), which is checked before loading: a damaged file is compiled anew, and
//             `how` reports it
//   bounded   the kMaxObjects most recently used objects are kept (one takes about 50 KB)
//   quiet     nothing is printed: `how` has the outcome
//
//   TITHE_CACHE  the folder; default: tithe in $XDG_CACHE_HOME or ~/.cache
//   TITHE_CXX    the compiler; default: the first of c++, g++, clang++; "none" disables compilation
#include <functional>
#include <span>
#include <string_view>

#include "lang/cpp/emit_cpp.h"
#include "lang/run/interpreter.h"
#include "lang/runtime/object.h"

namespace tithe::lang {

// The level that kernels run on: that of tithe/seam/machine.h, or of the test. As cheap as a kernel call.
Level level_in_use();
const char* flag_of(Level level);

struct Found {
  const Object* object = nullptr;
  std::string how;  // how the object was found, or why there is none
};

// True if an object matches the interpreter on `kinds` kinds of values.
using Verify = std::function<bool(const Object&, unsigned kinds)>;

inline constexpr std::size_t kMaxObjects = 256;

Found find_object(const CppBody& body, Level level, const Verify& verify);

// Keeps the `most` most recently used objects of a cache, and files being written. Processes that have loaded a
// removed object can still use it. Called after each compilation.
void trim_cache(const std::string& path, std::size_t most);

// The objects that were compiled with this library (cmake/programs.cmake), for one level. Empty in a build without
// them.
struct BuiltIn {
  Level level;
  const Object* objects;  // ends with an object without a key
  // For a codec of the library (lang/library.h): its name, and the index of the object for each combination and
  // phase; -1: none.
  std::string_view library = {};
  std::span<const std::int16_t> object_of = {};
};
std::span<const BuiltIn> built_in();
std::string compiled_with_tithe(Level level);  // the text of `how` for these

}  // namespace tithe::lang
