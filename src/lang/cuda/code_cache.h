// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels that were compiled stay in the user's cache, beside what is compiled for the processor (lang/store/): by
// text, compiler and kind of GPU. A file is sealed, and gets its name when it is complete; one that is damaged is made
// anew. Without a cache they are compiled each time.
#include <string>

#include "device/compiler.h"

namespace tithe::lang {

Result<std::string> cached_code(const device::Compiler& compiler, const std::string& text, int sm);

}  // namespace tithe::lang
