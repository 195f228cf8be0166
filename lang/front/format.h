// SPDX-License-Identifier: Apache-2.0
#pragma once
// Formats the text of a codec program in its one canonical layout:
//
//   spaces     sections start in column 0, their contents are indented by two; one space between words, two before a
//              comment behind code; none at a line's end
//   lines      at most one empty line, and one before phase, encode, send and decode, except before the section
//              directly below `phase`
//   columns    the '=' of neighbouring bindings are aligned
//   tokens     only spaces and empty lines change; formatting is idempotent
// A text with syntax errors is formatted as far as possible.
#include <string>
#include <string_view>

namespace tithe::lang {

std::string formatted(std::string_view text);

}  // namespace tithe::lang
