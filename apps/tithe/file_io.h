// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole files in and out.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::cli {

namespace fs = std::filesystem;

// How much is read for at most so many values: no payload of n values is longer than 8 n bytes and a header.
inline constexpr std::size_t kReadPerValue = 8;
inline constexpr std::size_t kReadBeside = 1U << 16;  // headers, for few values

// All of a file, a pipe or a device. kUnsupported where there is more than is read for `most_values`: a device such as
// /dev/zero never ends.
Result<std::vector<std::uint8_t>> read_file(const fs::path& path, std::size_t most_values);

// A regular file, new or not: all or nothing. It is written beside its place under another name, then renamed; links
// are followed to the file that they name, and its mode is kept. What is neither file nor folder (a device, a pipe) is
// written into.
Status write_file(const fs::path& path, ByteView bytes);

// Before long work: kIo where one of these files could not be written, since its folder is not there. Empty: no file.
Status check_folders(std::span<const std::string> files);

}  // namespace tithe::cli
