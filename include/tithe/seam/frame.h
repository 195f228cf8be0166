// SPDX-License-Identifier: Apache-2.0
#pragma once
// A frame is the unit of all messages between ranks: a fixed header and payloads. docs/reference/format.md is
// normative.
//
//   whole      a frame that is truncated, extended or changed in any bit is refused (checksum over the whole frame);
//              frames with a checksum over only the header require Transport::rounds_payloads()
//   known      lengths are compared with the expected ones before a payload byte is read
//   apart      parse_frame() reads the header, check_frame() compares it with expectations: two functions
//   tagged     between processes a frame ends with a tag, which only ranks of its job can compute
//              (docs/reference/security.md)
#include <cstddef>
#include <cstdint>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe {

enum class CodecId : std::uint16_t;  // tithe/seam/codec.h

inline constexpr std::uint32_t kFrameMagic = 0x48544954;  // "TITH" in file order
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kMaxParts = 256;  // payloads in one frame: one per rank under the concat law

inline constexpr std::size_t kFrameTagBytes = 16;
inline constexpr std::size_t kFrameTrailerBytes = 8 + kFrameTagBytes;  // number and tag, after the payload

enum FrameFlag : std::uint8_t {
  kFlagNonFinite = 1,  // a gradient of some rank had a NaN or Inf here: no payload, decode as NaN
  kFlagConcat = 2,     // several payloads: parts x u64 lengths, then the payloads back to back
  kFlagEmpty = 4,      // this rank contributes nothing (leader law, not the leader): no payload
};

// The bytes of a frame that a checksum or a tag covers.
enum class Cover : std::uint8_t { kHeader, kFrame };

struct FrameHeader {
  CodecId codec{};
  std::uint64_t run = 0;     // one number per job
  std::uint32_t round = 0;   // synchronisation step, counted from 0
  std::uint32_t tensor = 0;  // partition number within the plan
  std::uint16_t chunk = 0;
  std::uint8_t phase = 0;
  std::uint8_t flags = 0;
  std::uint16_t source = 0;  // the rank that encoded the frame
  std::uint16_t parts = 1;   // number of payloads
  std::uint64_t values = 0;  // number of gradient values in the frame
  std::uint64_t payload_bytes = 0;
  std::uint64_t plan = 0;  // hash of everything that ranks must agree on
  // kHeader: network cards on the path may round the payload (card/docs/card.md). Only for codec fp32, without
  // kFlagConcat.
  Cover checksum = Cover::kFrame;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Writes header and checksum before the payload, whose `payload_bytes` bytes are already at frame[64..].
// kTooSmall if frame is shorter than 64 + payload_bytes.
Status seal_frame(const FrameHeader& header, Bytes frame);

struct ParsedFrame {
  FrameHeader header;
  ByteView payload;          // points into the bytes that were parsed
  std::uint64_t number = 0;  // of a tagged frame; its source uses each number once
};

// Checks only the syntax: magic, version, sizes that add up to bytes.size(), checksum. kMismatch for another version
// and for a checksum over only the header; kCorrupt for all other errors. The Status names the header's source as the
// peer, if it can be read.
Result<ParsedFrame> parse_frame(ByteView bytes);

// A tag over only the header protects the payload by the checksum in the header, and an attacker can find another
// payload with the same checksum. A tag over the whole frame prevents that.
class Tagger;  // src/frame/tagger.h

// The same with a trailer after the payload: kTooSmall if frame is shorter than 64 + payload_bytes + 24. `number`
// must not have been used with the tagger's key. kInvalid for a tag over a payload without a checksum.
Status seal_frame(const FrameHeader& header, Bytes frame, Tagger& tagger, std::uint64_t number, Cover cover);
// kCorrupt, without a peer, for a frame without a valid tag, because its sender is unknown. kMismatch, with the
// source as peer, for a tag that covers less than `least`.
Result<ParsedFrame> parse_frame(ByteView bytes, Tagger& tagger, Cover least);

// Checks the fields that `expected` fixes. kMismatch for codec, plan, values, run; kCorrupt for the others.
// source, flags, parts and payload_bytes of `expected` are not compared; payload_bytes must be <= max_bytes.
Status check_frame(const FrameHeader& got, const FrameHeader& expected, std::size_t max_bytes);

// Under the concat law: the payloads in a frame, in the order in which they were joined.
// out.size() must be at least parts. kCorrupt if the lengths do not add up.
Status split_parts(const ParsedFrame& frame, std::span<ByteView> out);

}  // namespace tithe
