// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads and writes frames in one pass: the payload is processed piece by piece, together with the checksum, while the
// piece is in the L1 cache.
//
//   equal      same results as parse_frame() and seal_frame() of tithe/seam/frame.h
//   in_order   each piece is processed once, in order
#include <functional>
#include <optional>

#include "frame/checksum.h"
#include "tithe/seam/frame.h"

namespace tithe {

inline constexpr std::size_t kPieceBytes = 16384;

// Bytes [at, at + bytes) of the payload have been read and may be changed. Header and tag are valid at this time; the
// result of parse_frame() says whether the payload is valid.
using EachPiece = std::function<void(std::size_t at, std::size_t bytes)>;

// A reader's requirements for a frame.
struct Reading {
  Tagger* tagger = nullptr;         // null: frames have no tags
  Cover least = Cover::kHeader;     // the minimum cover of the tag
  Cover checksum = Cover::kFrame;   // the cover of the checksum; kMismatch for another one
  const EachPiece* each = nullptr;  // null: the payload is read in one piece
};
Result<ParsedFrame> parse_frame(ByteView bytes, const Reading& how);

// tagger: nullptr if frames have no tags.
Result<ParsedFrame> parse_frame(ByteView bytes, Tagger* tagger, Cover least, const EachPiece& each);

// The checksum of a frame whose payload is given in pieces. cover: of the tag, if there is one.
class FrameChecksum {
 public:
  FrameChecksum(const FrameHeader& header, std::optional<Cover> cover);
  void add(ByteView piece) {
    if (payload_) sum_.add(piece);
  }
  std::uint64_t checksum() const { return sum_.value(); }

 private:
  Checksum sum_;
  bool payload_ = true;  // the checksum covers the payload
};

// Seals a frame whose payload is in place and whose checksum was computed by a FrameChecksum with the same header and
// cover.
Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum);
Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum, Tagger& tagger,
                  std::uint64_t number, Cover cover);

}  // namespace tithe
