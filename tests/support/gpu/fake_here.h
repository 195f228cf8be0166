// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fake GPU of this process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/gpu/fake_gpu.h"

namespace tithe::testing {

inline const fake::Control& fake_gpu() {
  static const auto* const kControl = [] {
    void* const library = ::dlopen(TITHE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    return reinterpret_cast<const fake::Control* (*)()>(::dlsym(library, "fake_gpu"))();
  }();
  return *kControl;
}

}  // namespace tithe::testing
