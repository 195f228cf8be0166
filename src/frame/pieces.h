// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frames that are gone through once: what is done with a payload is done piece by piece, beside the checksum, while a
// piece is in the nearest cache.
//
//   alike      frames are read, refused and written as by the other parse_frame() and seal_frame()
//   in_order   each piece once, from the first on
#include <functional>
#include <optional>

#include "frame/checksum.h"
#include "tithe/seam/frame.h"

namespace tithe {

inline constexpr std::size_t kPieceBytes = 16384;

// Bytes [at, at + bytes) of the payload have been read, and may be changed: header and tag are right.
// parse_frame() says in the end whether the payload is.
using EachPiece = std::function<void(std::size_t at, std::size_t bytes)>;

// A reader's demands on a frame.
struct Reading {
  Tagger* tagger = nullptr;         // none where frames have no tags
  Cover least = Cover::kHeader;     // of the tag
  Cover checksum = Cover::kFrame;   // of the checksum: kMismatch for another one
  const EachPiece* each = nullptr;  // none: the payload is gone through at once
};
Result<ParsedFrame> parse_frame(ByteView bytes, const Reading& how);

// tagger: nullptr where frames have no tags.
Result<ParsedFrame> parse_frame(ByteView bytes, Tagger* tagger, Cover least, const EachPiece& each);

// The checksum of a frame whose payload comes piece by piece. cover: of its tag, if it gets one.
class Sealing {
 public:
  Sealing(const FrameHeader& header, std::optional<Cover> cover);
  void add(ByteView piece) {
    if (payload_) sum_.add(piece);
  }
  std::uint64_t checksum() const { return sum_.value(); }

 private:
  Checksum sum_;
  bool payload_ = true;  // it is covered
};

// A frame whose payload is in its place, and whose checksum is that of a Sealing with the same header and cover.
Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum);
Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum, Tagger& tagger,
                  std::uint64_t number, Cover cover);

}  // namespace tithe
