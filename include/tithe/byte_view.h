// SPDX-License-Identifier: Apache-2.0
#pragma once
// Views of bytes that codecs, frames and transports pass to each other. The maker of a view keeps the bytes alive.
#include <cstdint>
#include <span>

namespace tithe {

using Bytes = std::span<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;

}  // namespace tithe
