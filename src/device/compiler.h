// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of kernels as code for a GPU, by NVRTC: found when asked for, never linked, as PyTorch's wheels carry it.
//
//   found    in what the process has loaded, or where the system finds it; TITHE_NVRTC names another. The library of
//            built-in functions that lies beside it is loaded first, by its path
//   rounds   nothing fused, nothing approximate, denormals kept
//   kept     what was compiled, by text, compiler and sm, for as long as the process lives
//   refused  kUnsupported: there is no NVRTC, it knows no such GPU, or it refuses the text, and its first line of why
#include <cstdint>
#include <memory>
#include <string>

#include "tithe/status.h"

namespace tithe::device {

class Compiler {
 public:
  // `library`: its path, or a name that the system finds.
  static Result<Compiler> load(const std::string& library);

  int version() const;  // 12090: 12.9
  // The file that it was loaded from, its size and age: another one compiles otherwise.
  const std::string& identity() const;
  // Code for GPUs of this compute capability, 90 for 9.0.
  Result<std::string> code(const std::string& text, int sm) const;
  // The PTX that code() is made of, before anybody has chosen registers for it; that is kept with it.
  Result<std::string> ptx(const std::string& text, int sm) const;

 private:
  struct Library;
  explicit Compiler(std::shared_ptr<Library> library) : library_(std::move(library)) {}
  std::shared_ptr<Library> library_;
};

// That of this machine, looked for once.
const Result<Compiler>& this_compiler();

}  // namespace tithe::device
