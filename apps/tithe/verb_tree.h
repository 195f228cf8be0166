// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line as data, for help, completion and the manual page. It comes from verbs.def and the declarations of
// the verbs.
#include <string>
#include <vector>

#include "verb.h"

namespace tithe::cli {

struct ArgumentInfo {
  std::string name;      // "--seed", or "CODEC" for a positional argument
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

// All verbs, in the order of verbs.def. `app` may be that of any verb.
std::vector<VerbInfo> all_verbs(const CLI::App& app);
const CLI::App& root_of(const CLI::App& app);

// "tithe encode [OPTIONS] CODEC IN OUT"
std::string usage(const VerbInfo& verb);

// The possible values of an argument, by its name: codecs for CODEC and --codec, strategies, transports, models. Empty:
// any.
std::vector<std::string> values_for(std::string_view argument);
bool names_a_file(std::string_view argument);  // IN, OUT, --python

}  // namespace tithe::cli
