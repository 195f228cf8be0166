// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records that travel on a control connection: 16 bytes and a check each, some with bytes behind and a check of
// these.
//
//   u8 kind | u8 0 | u16 stream | u32 channel or message | u64 n | u64 check   [bytes | u64 check]    little-endian
//
// A check is XXH3-64 of what stands before it, seeded with the check before; the first seed is made from the job's key
// and the direction. So a bit that changes on its way is noticed before anything is made of it, also in a length, and
// so is a record that is missing or comes twice. Damage on purpose, without the key, is noticed too; tags of frames are
// what keeps out who tries harder.
//
// A message of up to kWholeBytes follows its record. A longer one's edge follows it: the first 64 bytes, which are a
// frame's header, and what is left of its end when the trailer of 24 bytes is cut off and 32 bytes (8 floats) divide
// the middle. The middle is its body, which travels on data connections and alone there, in pieces: a record says on
// which connection the next bytes belong to which message. Long messages between two ranks are numbered from 0, and
// pieces of one follow each other.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/secret.h"
#include "tithe/byte_view.h"
#include "tithe/seam/frame.h"
#include "tithe/seam/transport.h"

namespace tithe::tcp {

enum class Kind : std::uint8_t {
  kWhole = 1,  // a message on a channel, n bytes, which follow
  kLong,       // a message on a channel, n bytes; its edge follows
  kPiece,      // on a stream, n bytes of a long message's body
  kGrant,      // on a channel, room is posted for the first n messages: their bodies may come
  kEnd,        // a long message was withdrawn: no further piece of it comes
  kFarewell,   // nothing more comes; n bytes of text say why, where this rank could not connect
  kAnswer,     // a farewell was heard
};

struct Record {
  Kind kind = Kind::kWhole;
  int stream = 0;
  std::uint32_t about = 0;  // channel or message
  std::uint64_t n = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

inline constexpr std::size_t kRecordBytes = 16;
inline constexpr std::size_t kCheckBytes = 8;
inline constexpr std::size_t kWholeBytes = 4096;  // longer messages have a body
inline constexpr std::size_t kBodyUnit = 32;
inline constexpr std::size_t kMostLastWords = 300;
inline constexpr std::size_t kMostEdgeBytes = kFrameHeaderBytes + kFrameTrailerBytes + kBodyUnit - 1;

// The size of the body of a message of more than kWholeBytes.
constexpr std::size_t body_bytes(std::size_t bytes) {
  return (bytes - kFrameHeaderBytes - kFrameTrailerBytes) / kBodyUnit * kBodyUnit;
}

void write_record(const Record& record, std::uint8_t* to);
// Nothing where no rank would write it: an unknown kind, a field that is not of that kind, a length without measure.
std::optional<Record> read_record(ByteView bytes);
// The bytes that follow a record.
std::size_t bytes_behind(const Record& record);

// The checks of one direction of a control connection.
using Check = std::uint64_t;
Check first_check(const Secret& key, Rank from, Rank to);
Check next_check(Check last, ByteView bytes);
// Appends the record, its bytes in up to two pieces, and the checks; moves `last` on.
void append_record(const Record& record, ByteView first, ByteView second, Check& last,
                   std::vector<std::uint8_t>& out);

}  // namespace tithe::tcp
