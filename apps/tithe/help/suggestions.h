// SPDX-License-Identifier: Apache-2.0
#pragma once
// A guess at what somebody meant who wrote a command line that is wrong.
#include <string>

#include "verb.h"

namespace tithe::cli {

// "unknown verb 'encod': did you mean 'encode'? known: ...", likewise for flags; where a parameter stands behind a
// blank instead of a colon, or a codec without its flag, that. Empty: nothing is known to be wrong.
std::string find_suggestion(const CLI::App& root, int argc, char** argv);

}  // namespace tithe::cli
