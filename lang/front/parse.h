// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parses text to a File (ast.h); docs/reference/language_reference.md has the grammar. After a problem, parsing
// resumes on the next line.
#include "lang/front/ast.h"

namespace tithe::lang {

// Complete if `problems` is empty.
File parse(const Source& source, Problems& problems);

}  // namespace tithe::lang
