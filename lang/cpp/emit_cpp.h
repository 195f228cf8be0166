// SPDX-License-Identifier: Apache-2.0
#pragma once
// Generates C++ for one phase of a checked program and one processor: the same bytes, residuals and values as the
// interpreter's, in as few passes over memory as the program allows.
//
//   fused          a pass of the schedule is one loop; encode's last loop also decodes the sent values and writes the
//                  residual
//   sixteen        values are processed at a time, in the target's vectors; sums therefore have the order of
//                  base/fold.h
//   self-contained the text includes two headers of the C library and, on x86, the compiler's intrinsics
//   keyed          by the text: an object of a different text is never used
//
// Programs that send pairs are not generated: the library has kernels for them (pairs.h). Int fields are packed and
// unpacked by the library's kernels, which a call passes in. Programs that send trits write and read flat payloads
// (lang/cpp/flat_payload.h), which the library converts.
#include <cstdint>
#include <span>
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

struct CppBody {
  std::string text;
  std::uint64_t key = 0;  // hash of the text, the prelude and tithe's version
  unsigned combination = 0;
  bool checks = true;   // the object has a check function
  bool decodes = true;  // the object is of the last phase
};

CppBody emit_cpp(const Checked& program, const Schedule& schedule);

// CppBody::key.
std::uint64_t cpp_key(const std::string& text);

// A complete source file; `symbol` names an array of Object (lang/runtime/object.h) that ends with an empty element.
std::string cpp_file(std::span<const CppBody> bodies, const std::string& symbol);

}  // namespace tithe::lang
