// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <utility>

namespace tithe::cli {
namespace {

bool taken = false;

}  // namespace

bool is_standard_output(const std::filesystem::path& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

CLI::Option* add_output(CLI::App& app, const std::string& option, std::string& path, const std::string& doc) {
  return app.add_option(option, path, doc)->check([](const std::string& given) -> std::string {
    if (!is_standard_output(given) || !std::exchange(taken, true)) return {};
    return "only one file can be written to standard output";
  });
}

bool standard_output_in_use() { return taken; }

}  // namespace tithe::cli
