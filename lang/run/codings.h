// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays of a block whose size in bytes depends on their contents (Coding).
//
//   codes    fixed-width codes without gaps, the lowest bit first; zeros behind the last one
//   widths   likewise, with a width per code; a code of width 0 takes no bits and is read as 0
//   trits    0, 1 or 2: five per byte, 81 a + 27 b + 9 c + 3 d + e, padded with ones. Then each run of 2 to 14 bytes
//            121 (five ones) becomes the byte 241 + its length; a longer run starts with one byte 255 per 14 bytes 121
//            (3LC's quartic and zero-run encodings: Lim, Andersen, Kaminsky, MLSys 2019)
//   places   the number of ones, in count_bytes(block) bytes; then their positions, in place_bits(block) bits each
#include <optional>
#include <span>

#include "lang/front/passes.h"
#include "tithe/byte_view.h"

namespace tithe::lang {

// Bytes of trits, and runs of bytes 121.
namespace trits {
inline constexpr std::size_t kDigits = 5;  // per byte
inline constexpr std::uint8_t kOnes = 121;
inline constexpr std::uint32_t kFirstRun = 243;    // two bytes 121
inline constexpr std::uint32_t kLongestRun = 255;  // kLongest bytes 121
inline constexpr std::size_t kLongest = 14;
// Writes a run of this many bytes 121, and returns the end of the written bytes.
std::uint8_t* put_run(std::size_t length, std::uint8_t* to);
}  // namespace trits

// Writes a block's codes and returns the end of the written bytes. Only kWidths reads `widths`.
std::uint8_t* put_codes(const Item& item, std::span<const std::uint32_t> codes,
                        std::span<const std::uint32_t> widths, std::uint8_t* to);

// Reads codes.size() codes from the start of `from` and returns the number of bytes read. Empty if `from` is too
// short or differs from put_codes' output.
std::optional<std::size_t> get_codes(const Item& item, ByteView from, std::span<const std::uint32_t> widths,
                                     std::span<std::uint32_t> codes);

}  // namespace tithe::lang
