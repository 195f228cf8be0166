// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of fp32 values: .npy, or bare little-endian float32.
#include <span>
#include <vector>

#include "file_io.h"

namespace tithe::cli {

bool is_npy(ByteView bytes);  // by its first bytes

// .npy (told by its first bytes; float32, little-endian, in C order, any shape: flattened), all else is bare float32.
// kInvalid says what the file holds instead, and how to convert it; kUnsupported: more than `most_values`.
Result<std::vector<float>> parse_values(const fs::path& path, ByteView bytes, std::size_t most_values);

// One-dimensional .npy where the name ends so, bare float32 otherwise.
Status write_values(const fs::path& path, std::span<const float> values);

}  // namespace tithe::cli
