// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that the verbs read and write: fp32 values as .npy or as bare little-endian float32, and frames as they are.
#include <filesystem>
#include <span>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::cli {

namespace fs = std::filesystem;

Result<std::vector<std::uint8_t>> read_file(const fs::path& path);

// All or nothing: written beside `path` under another name, then renamed over it.
Status write_file(const fs::path& path, ByteView bytes);

// .npy (told by its first bytes; float32, little-endian, in C order, any shape: flattened), all else is bare float32.
// kInvalid says what the file holds instead, and how to convert it.
Result<std::vector<float>> parse_values(const fs::path& path, ByteView bytes);

// One-dimensional .npy where the name ends so, bare float32 otherwise.
Status write_values(const fs::path& path, std::span<const float> values);

}  // namespace tithe::cli
