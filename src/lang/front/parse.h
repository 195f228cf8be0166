// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to a File (ast.h); docs/reference/language_reference.md has the grammar. A problem ends its line, and reading
// goes on with the next one.
#include "lang/front/ast.h"

namespace tithe::lang {

// Complete unless `problems` has any.
File parse(const Source& source, Problems& problems);

}  // namespace tithe::lang
