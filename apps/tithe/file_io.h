// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads and writes whole files.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::cli {

namespace fs = std::filesystem;

// The limit for reading n values: a payload of n values has at most 8 n bytes and a header.
inline constexpr std::size_t kReadPerValue = 8;
inline constexpr std::size_t kReadBeside = 1U << 16;  // headers, which dominate for few values

// Reads all of a file, a pipe or a device. kUnsupported if it exceeds the limit for `max_values`: a device such as
// /dev/zero never ends.
Result<std::vector<std::uint8_t>> read_file(const fs::path& path, std::size_t max_values);

// Writes a regular file, all or nothing: under another name in the same folder, then renamed. Links are followed to
// their target, and its mode is kept. A target that is neither a file nor a folder (a device, a pipe) is written
// directly.
Status write_file(const fs::path& path, std::string_view text);
inline Status write_file(const fs::path& path, ByteView bytes) {
  return write_file(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Call before long work: kIo if the folder of one of these files does not exist. An empty name is no file.
Status check_folders(std::span<const std::string> files);

}  // namespace tithe::cli
