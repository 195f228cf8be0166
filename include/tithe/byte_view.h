// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs of bytes, as codecs, frames and transports hand them to each other. Whoever makes one keeps the bytes alive.
#include <cstdint>
#include <span>

namespace tithe {

using Bytes = std::span<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;

}  // namespace tithe
