// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where compiled programs come from: this build itself, the user's cache, or the system's compiler.
//
//   private   the cache is a folder of the user that nobody else can write to, and so are the files in it; another one
//             is refused with the cure. What was looked at is what is loaded
//   keyed     by the text, the interface, the compiler and the level: another one's object is not found
//   whole     a file gets its name when it is complete and was held to the interpreter; readers never see half of one.
//             It carries a checksum (seal.h), which is looked at before the file is loaded: one that was cut or
//             damaged is made anew, and `how` says so
//   bounded   the kMostObjects that were used last are kept (one takes some 50 KB)
//   silent    nothing is printed: `how` tells
//
//   TITHE_CACHE  the folder; unless set, tithe in $XDG_CACHE_HOME or ~/.cache
//   TITHE_CXX    the compiler; unless set, the first of c++, g++, clang++; none: no compiler, on purpose
#include <functional>
#include <span>
#include <string_view>

#include "lang/cpp/emit_cpp.h"
#include "lang/run/interpreter.h"
#include "lang/runtime/object.h"

namespace tithe::lang {

// The level of what kernels run on: tithe/seam/machine.h, or the test. As cheap as a call of a kernel.
Level level_in_use();
const char* flag_of(Level level);

struct Found {
  const Object* object = nullptr;
  std::string how;  // what was found, or why nothing was
};

// True if an object does what the interpreter does, on so many kinds of values.
using Check = std::function<bool(const Object&, unsigned kinds)>;

inline constexpr std::size_t kMostObjects = 256;

Found find_object(const CppBody& body, Level level, const Check& check);

// Keeps the objects of a cache that were used last, `most` of them, and what is being made. A process that has
// loaded one that goes keeps it. Called where something was compiled.
void trim_cache(const std::string& path, std::size_t most);

// The objects of codecs/ that were compiled with this tithe (cmake/programs.cmake): of one level, all with one symbol's
// end. Empty in a build without them.
struct BuiltIn {
  Level level;
  const Object* objects;  // up to one without a key
  // For a codec of the library (lang/library.h): its name, and the object that runs each combination and phase; -1:
  // none does.
  std::string_view library = {};
  std::span<const std::int16_t> object_of = {};
};
std::span<const BuiltIn> built_in();
std::string compiled_with_tithe(Level level);  // how these run

}  // namespace tithe::lang
