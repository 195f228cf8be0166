// SPDX-License-Identifier: Apache-2.0
#pragma once
// A frame is the only thing that travels: a fixed header and its payloads. docs/format.md is normative.
//
//   whole      a frame that was cut, lengthened or changed in any bit is refused (checksum over all of it)
//   known      lengths are compared with what this rank already knows before a payload byte is touched
//   apart      parse() reads the header, check() holds it against expectations: two functions
//   tagged     between processes a frame ends in a tag, which only the ranks of its job can write (docs/security.md)
#include <cstddef>
#include <cstdint>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe {

enum class CodecId : std::uint16_t;  // tithe/codec.h

inline constexpr std::uint32_t kFrameMagic = 0x48544954;  // "TITH" in file order
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kMaxParts = 256;  // payloads in one frame: one per rank under the concat law

inline constexpr std::size_t kFrameTagBytes = 16;
inline constexpr std::size_t kFrameTrailerBytes = 8 + kFrameTagBytes;  // number and tag, after the payload

enum FrameFlag : std::uint8_t {
  kFlagNonFinite = 1,  // some rank's gradient held a NaN or Inf here: no payload, decode as NaN
  kFlagConcat = 2,     // several payloads: parts x u64 lengths, then the payloads back to back
  kFlagEmpty = 4,      // this rank adds nothing (leader law, not the leader): no payload
};

struct FrameHeader {
  CodecId codec{};
  std::uint64_t run = 0;     // one number per job
  std::uint32_t round = 0;   // synchronisation step, counted from 0
  std::uint32_t tensor = 0;  // partition number within the plan
  std::uint16_t chunk = 0;
  std::uint8_t phase = 0;
  std::uint8_t flags = 0;
  std::uint16_t source = 0;  // rank that made the frame
  std::uint16_t parts = 1;   // payloads within
  std::uint64_t values = 0;  // gradient values that the frame stands for
  std::uint64_t payload_bytes = 0;
  std::uint64_t plan = 0;  // hash of everything that ranks must agree on
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Writes header and checksum in front of `payload_bytes` bytes that already stand at frame[64..].
// kTooSmall when frame is shorter than 64 + payload_bytes.
Status seal_frame(const FrameHeader& header, Bytes frame);

struct ParsedFrame {
  FrameHeader header;
  ByteView payload;          // points into the bytes that were parsed
  std::uint64_t number = 0;  // of a tagged frame: its source gives each out once
};

// Syntax only: magic, version, sizes that add up to bytes.size(), checksum. kCorrupt, or kMismatch for
// another version; the header's source is named as the peer where it can be read.
Result<ParsedFrame> parse_frame(ByteView bytes);

// What a tag speaks for. The header holds a checksum of the payload, which an attacker can keep; a tag over the whole
// frame leaves nothing to change.
enum class Cover : std::uint8_t { kHeader, kFrame };
class Tagger;  // src/frame/tagger.h

// The same with a trailer behind the payload: kTooSmall when frame is shorter than 64 + payload_bytes + 24. `number`
// must be new under the tagger's key.
Status seal_frame(const FrameHeader& header, Bytes frame, Tagger& tagger, std::uint64_t number, Cover cover);
// kCorrupt without naming a peer for a frame without a tag or with a wrong one: who sent it is not known. kMismatch
// that names its source for a tag that covers less than `least`.
Result<ParsedFrame> parse_frame(ByteView bytes, Tagger& tagger, Cover least);

// Meaning: every field that `expected` fixes. kMismatch for codec, plan, values, run; kCorrupt for the rest.
// source, flags, parts and payload_bytes of `expected` are not compared; payload_bytes must be <= most_bytes.
Status check_frame(const FrameHeader& got, const FrameHeader& expected, std::size_t most_bytes);

// Under the concat law: the payloads inside a frame, in the order in which they were joined.
// out.size() must be at least parts. kCorrupt when lengths do not add up.
Status split_parts(const ParsedFrame& frame, std::span<ByteView> out);

}  // namespace tithe
