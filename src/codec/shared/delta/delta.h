// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lossless difference between two versions of 16-bit weights, for all-gathers of parameters.
//
// Between two optimizer steps a bf16 weight moves by a few ulps. The size of an ulp depends on the exponent,
// so the distribution of the difference does too. The coder therefore entropy-codes each difference with a table of the
// exponent class of the previous value, which the receiver has too.
//
//   lossless   decode() returns the bits of encode()'s input: any pattern, NaN and infinities included
//   bounded    a payload has at most bound(n) bytes; a chunk that does not shrink is sent uncompressed
//   checked    decode() accepts any bytes as input, and reads nothing outside them
//   same bytes every machine writes the bytes of the reference (delta_passes.h)
//   same copy  a payload carries a checksum of the previous values, so a receiver with other values refuses it
//
// The payload is described in docs/reference/format_delta.md. The entropy coder is rANS (Duda 2013, arXiv:1311.2540).
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::delta {

enum class Format { kBf16, kFp16 };

inline constexpr std::size_t kChunk = std::size_t{1} << 18;

// The maximum payload size for n values in bytes: 2 n plus less than 1 % for n >= 1024.
std::size_t bound(std::size_t n);

// Returns the number of bytes written. `before` and `now` have equal sizes; `out` has bound(n) bytes.
std::size_t encode(Format format, std::span<const std::uint16_t> before, std::span<const std::uint16_t> now,
                   Bytes out);

// `now` may be the memory of `before`. kMismatch: the sender's previous values differ; `now` is not written.
// kCorrupt: the payload is damaged; the content of `now` is unspecified.
Status decode(Format format, std::span<const std::uint16_t> before, ByteView payload,
              std::span<std::uint16_t> now);

// ---- As float32 words, for sessions: 4 bytes of payload in each word, and one word more for 1,020 bytes. No word is
// NaN or Inf. Codec `zip` adds 0.1 %, and sends almost nothing for the zeros behind the payload.

std::size_t words(std::size_t bytes);  // for a payload of this size and its length
void pack(ByteView payload, std::span<float> out);
// Writes the payload to `room` and returns its size. kCorrupt: the words contain no payload.
Result<std::size_t> unpack(std::span<const float> in, Bytes room);

}  // namespace tithe::delta
