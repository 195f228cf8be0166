// SPDX-License-Identifier: Apache-2.0
#pragma once
// Output files of a verb. `-` is standard output, and ./- is a file named "-".
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace tithe::cli {

// True for `-`, and for /dev/stdout and its aliases, whatever they refer to.
bool is_standard_output(const std::filesystem::path& path);

// Adds an option that names an output file. If it is standard output, that holds only the file, and messages go to
// stderr. Two such options with standard output are a usage error.
CLI::Option* add_output(CLI::App& app, const std::string& option, std::string& path, const std::string& doc);

// True after a parsed option has named it.
bool standard_output_in_use();

}  // namespace tithe::cli
