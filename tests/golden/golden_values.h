// SPDX-License-Identifier: Apache-2.0
#pragma once
// The values of golden frames: values.sha256 has a line per case, its name, how many values, and the SHA-256 of their
// bits (little-endian float32). Beside it each codec has a sample that people can read: <codec>_odd.txt, 33 values.
#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tithe::golden {

inline std::filesystem::path folder() {
  const char* elsewhere = std::getenv("TITHE_TEST_SOURCE");  // of a packed test (tools/gpu_pack.sh)
  return std::filesystem::path(elsewhere == nullptr ? TITHE_SOURCE_DIR : elsewhere) / "tests/golden";
}

struct Listed {
  std::size_t n = 0;
  std::string sha256;
  friend bool operator==(const Listed&, const Listed&) = default;
};

inline Listed listed_as(std::span<const float> values) {
  std::vector<std::uint8_t> bytes(4 * values.size());
  for (std::size_t i = 0; i < values.size(); ++i) wire::put(&bytes[4 * i], values[i]);
  std::uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  Listed made{values.size(), {}};
  for (const std::uint8_t byte : digest) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    made.sha256 += hex;
  }
  return made;
}

// The whole list, by name of the case.
inline std::map<std::string, Listed> listed_values() {
  std::map<std::string, Listed> all;
  std::ifstream in(folder() / "values.sha256");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string name;
    Listed one;
    if (fields >> name >> one.n >> one.sha256) all[name] = one;
  }
  return all;
}

// One value a line; a run of equal bits is written once, with its length.
inline std::string text_of(std::span<const float> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t run = 1;
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    while (i + run < values.size() && std::bit_cast<std::uint32_t>(values[i + run]) == bits) ++run;
    char line[64];
    std::snprintf(line, sizeof line, run == 1 ? "%a\n" : "%a *%zu\n", static_cast<double>(values[i]), run);
    text += line;
    i += run;
  }
  return text;
}

// For failures: the first value that differs from the reference's, if any; else the first values, and the command
// that prints all of them before and after a change.
inline std::string how_they_differ(std::span<const float> got, std::span<const float> reference) {
  const std::size_t n = std::min(got.size(), reference.size());
  for (std::size_t i = 0; i < n; ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(reference[i])) {
      char line[160];
      std::snprintf(line, sizeof line, "value %zu is %a where the reference decodes %a\n", i,
                    static_cast<double>(got[i]), static_cast<double>(reference[i]));
      return line;
    }
  return "as the reference decodes; the first values are\n" +
         text_of(got.first(std::min<std::size_t>(8, got.size()))) +
         "TITHE_GOLDEN_VALUES=folder writes all values of every case there: do it before and after the "
         "change, and "
         "compare the folders\n";
}

}  // namespace tithe::golden
