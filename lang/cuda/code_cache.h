// SPDX-License-Identifier: Apache-2.0
#pragma once
// Caches compiled kernels in the user's cache, next to compiled C++ (lang/store/), by text, compiler and GPU
// architecture. A file is sealed, and renamed to its final name when complete; a damaged file is compiled anew.
// Without a cache, kernels are compiled in every process.
#include <string>

#include "device/compiler.h"

namespace tithe::lang {

Result<std::string> cached_code(const device::Compiler& compiler, const std::string& text, int sm);

}  // namespace tithe::lang
