// SPDX-License-Identifier: Apache-2.0
#pragma once
// Compiles the text of kernels with NVRTC, which is loaded at run time, never linked; PyTorch's wheels contain it.
//
//   loaded   from the libraries of the process or the system's search path; TITHE_NVRTC overrides the name. NVRTC's
//            library of built-in functions in the same folder is loaded first, by its path
//   rounding nothing is fused or approximated, denormals are kept
//   cached   by text, compiler and compute capability, for the life of the process
//   refused  kUnsupported: there is no NVRTC, it does not support the GPU, or it rejects the text, with the first error
#include <cstdint>
#include <memory>
#include <string>

#include "tithe/status.h"

namespace tithe::device {

class Compiler {
 public:
  // `library`: a path, or a name in the system's search path.
  static Result<Compiler> load(const std::string& library);

  int version() const;  // 12090: 12.9
  // Identifies the loaded file by path, size and time stamp: a different file may compile differently.
  const std::string& identity() const;
  // Code for GPUs of this compute capability, 90 for 9.0.
  Result<std::string> code(const std::string& text, int sm) const;
  // The PTX that code() is assembled from, before register allocation; also fills the cache of code().
  Result<std::string> ptx(const std::string& text, int sm) const;

 private:
  struct Library;
  explicit Compiler(std::shared_ptr<Library> library) : library_(std::move(library)) {}
  std::shared_ptr<Library> library_;
};

// The machine's NVRTC, loaded once.
const Result<Compiler>& this_compiler();

}  // namespace tithe::device
