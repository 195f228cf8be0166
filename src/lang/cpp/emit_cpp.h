// SPDX-License-Identifier: Apache-2.0
#pragma once
// A phase of a checked program as C++ for one processor: the same bytes, residuals and values as the interpreter's, in
// as few passes over memory as the program allows.
//
//   fused      a pass of the schedule is one loop; encode's last one also decodes what it sends and leaves the rest
//   sixteen    values at a time, in whatever vectors the target has; sums therefore have the shape of base/fold.h
//   alone      the text includes two headers of the C library and, on x86, the compiler's own
//   keyed      by its text: what was compiled of another text is not used
//
// Programs that send pairs are not emitted: their form has kernels of its own (pairs.h). Int fields are packed and
// unpacked by the library's kernels, which a call hands over. Payloads of a program that sends trits are flat
// (lang/cpp/flat_payload.h): the library makes them shorter.
#include <cstdint>
#include <span>
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

struct CppBody {
  std::string text;
  std::uint64_t key = 0;  // of the text, of what stands in front of it, and of this tithe
  unsigned combination = 0;
  bool checks = true;   // it has a check of its own
  bool decodes = true;  // it is the last phase
};

CppBody emit_cpp(const Checked& program, const Schedule& schedule);

// CppBody::key.
std::uint64_t cpp_key(const std::string& text);

// A file that can be compiled: `symbol` names an array of Object (lang/runtime/object.h) that ends with an empty one.
std::string cpp_file(std::span<const CppBody> bodies, const std::string& symbol);

}  // namespace tithe::lang
