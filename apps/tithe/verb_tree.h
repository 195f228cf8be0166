// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line as a list: what help, completion and the manual page are made from. All of it comes from verbs.def
// and from what each verb declares.
#include <string>
#include <vector>

#include "verb.h"

namespace tithe::cli {

struct ArgumentInfo {
  std::string name;      // "--seed", or "CODEC" for what has no flag
  std::string doc;       // one line
  std::string fallback;  // empty: none
  bool takes_value = true;
  bool required = false;
};

struct VerbInfo {
  std::string path;  // "bench codec"
  std::string doc;
  std::vector<ArgumentInfo> positionals, flags;
};

// All verbs, in the order of verbs.def. `app` is any verb's own.
std::vector<VerbInfo> all_verbs(const CLI::App& app);
const CLI::App& root_of(const CLI::App& app);

// "tithe encode [OPTIONS] CODEC IN OUT"
std::string usage(const VerbInfo& verb);

// An argument's values, by its name: codecs for CODEC and --codec, strategies, transports, models. Empty: anything.
std::vector<std::string> values_for(std::string_view argument);
bool names_a_file(std::string_view argument);  // IN, OUT, --python

}  // namespace tithe::cli
