// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arrays of a block as bytes, where their length depends on what they hold (Coding), and back.
//
//   codes    as many bits each, without gaps, the lowest bit first; zeros behind the last
//   widths   the same, with bits of its own for each; 0 bits are nothing, and read as 0
//   trits    0, 1 or 2: five to a byte, 81 a + 27 b + 9 c + 3 d + e, ones behind the last. Then each run of 2 to 14
//            bytes 121, which are five ones, becomes the byte 241 + its length; a longer one begins with as many 255,
//            14 each, as go into it (3LC's quartic and zero-run encodings: Lim, Andersen, Kaminsky, MLSys 2019)
//   places   how many are 1, in count_bytes(block) bytes; then where each of them stands, in place_bits(block) bits
#include <optional>
#include <span>

#include "lang/front/passes.h"
#include "tithe/byte_view.h"

namespace tithe::lang {

// Writes a block's codes and returns the end of the written bytes. Only kWidths reads `widths`.
std::uint8_t* put_codes(const Item& item, std::span<const std::uint32_t> codes,
                        std::span<const std::uint32_t> widths, std::uint8_t* to);

// Reads codes.size() codes from the start of `from` and returns the number of bytes read. Empty if `from` is too
// short or differs from put_codes' output.
std::optional<std::size_t> get_codes(const Item& item, ByteView from, std::span<const std::uint32_t> widths,
                                     std::span<std::uint32_t> codes);

}  // namespace tithe::lang
