// SPDX-License-Identifier: Apache-2.0
#pragma once
// Guesses the intention behind an invalid command line.
#include <string>

#include "verb.h"

namespace tithe::cli {

// "unknown verb 'encod': did you mean 'encode'? known: ...", likewise for options; a parameter after a blank instead of
// a colon; a codec without its option. Empty if no mistake is found.
std::string find_suggestion(const CLI::App& root, int argc, char** argv);

}  // namespace tithe::cli
