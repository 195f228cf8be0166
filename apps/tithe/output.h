// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that a verb writes. `-` is standard output, as for an input it is standard input; a file of that name is ./-.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace tithe::cli {

// `-`, or /dev/stdout and its like, whatever stands behind them.
bool is_standard_output(const std::filesystem::path& path);

// An option that names a file to write. Where that is standard output it holds the file alone: what the verb has to say
// goes to stderr. Two such options with standard output are a usage error.
CLI::Option* add_output(CLI::App& app, const std::string& option, std::string& path, const std::string& doc);

// True as soon as an option that was parsed named it.
bool standard_output_is_taken();

}  // namespace tithe::cli
