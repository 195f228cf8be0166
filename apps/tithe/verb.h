// SPDX-License-Identifier: Apache-2.0
#pragma once
// A verb of the command line declares its options and returns the function to run. The result is a Report, so that text
// and --json have the same content; only main.cc prints.
#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tithe/status.h"

namespace tithe::cli {

using Json = nlohmann::ordered_json;

struct Report {
  std::string text;     // for people, with a newline at the end
  Json json;            // for programs; docs/reference/cli.md and docs/reference/cli_jobs.md list the fields
  bool failed = false;  // the result is negative: exit code 1, although no error occurred
};

// Adds --max-values, for verbs that read a file.
void add_most_values(CLI::App& app, std::size_t& max_values);

using Run = std::function<Result<Report>()>;

struct Verb {
  std::string_view name;  // as in verbs.def
  std::string_view doc;   // one line
  Run (*declare)(CLI::App& app);
};

#define TITHE_VERB(name) extern const Verb name##_verb;
#include "verbs.def"
#undef TITHE_VERB

}  // namespace tithe::cli
