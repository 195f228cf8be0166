// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of fp32 values: .npy, or bare little-endian float32.
#include <span>
#include <vector>

#include "file_io.h"

namespace tithe::cli {

bool is_npy(ByteView bytes);  // by its first bytes

// A .npy file, recognized by its first bytes (float32, little-endian, C order; any shape, flattened); any other file is
// bare float32. kInvalid describes the actual content and how to convert it; kUnsupported: more than `max_values`.
Result<std::vector<float>> parse_values(const fs::path& path, ByteView bytes, std::size_t max_values);

// Writes a one-dimensional .npy file if the name ends in .npy, else bare float32.
Status write_values(const fs::path& path, std::span<const float> values);

}  // namespace tithe::cli
