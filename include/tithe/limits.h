// SPDX-License-Identifier: Apache-2.0
#pragma once
// Limits of value counts. Sizes of payloads, scratch and memories are computed in std::size_t: up to kMaxValues
// no codec's computation of them can overflow, whatever its settings (src/codec/limits_test.cc; the first would at
// 2^57). Sessions, the C ABI, the command line and Python refuse larger counts.
#include <cstddef>

namespace tithe {

// The most values of a tensor, a bucket or a frame: 4 TiB of fp32.
inline constexpr std::size_t kMaxValues = std::size_t{1} << 40;

// The default limit for the number of values that a frame outside a session may claim, in a file or in memory: 256 MiB.
// A frame of a sparse codec has 68 bytes for any number of zeros, so a large claim costs its writer nothing.
inline constexpr std::size_t kDefaultMaxValues = std::size_t{1} << 26;

}  // namespace tithe
