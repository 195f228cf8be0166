// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of a control connection. A record has 16 bytes and a checksum; some records are followed by bytes with a
// checksum of their own. Little-endian:
//
//   u8 kind | u8 0 | u16 stream | u32 channel or message | u64 n | u64 checksum   [bytes | u64 checksum]
//
// A checksum is the XXH3-64 of the bytes before it, seeded with the previous checksum; the first seed is derived from
// the job's key and the direction. So a changed bit, also in a length, a missing record and a repeated record are all
// detected before the receiver acts on the record. Deliberate damage by a party without the key is detected too, but
// XXH3 is not a cryptographic code: the frame tags protect against a serious attacker.
//
// A message of up to kWholeBytes follows its record. A longer message is split into an edge and a body. The edge
// follows the record. It holds the first 64 bytes, which are a frame's header, and the end: the trailer of 24 bytes and
// the bytes before it that do not fill a unit of 32 bytes (8 floats). The body travels on data connections only, in
// pieces; a record says which connection carries the next bytes of which message. Long messages between two ranks are
// numbered from 0. The pieces of one message are sent in order.
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
  kGrant,      // on a channel: receives are posted for the first n messages, so their bodies may be sent
  kEnd,        // a long message was withdrawn: no further piece of it follows
  kFarewell,   // the sender closes; n bytes of text give the reason if it failed to connect
  kAnswer,     // acknowledges a farewell
};

struct Record {
  Kind kind = Kind::kWhole;
  int stream = 0;
  std::uint32_t about = 0;  // channel or message
  std::uint64_t n = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

inline constexpr std::size_t kRecordBytes = 16;
inline constexpr std::size_t kChecksumBytes = 8;
inline constexpr std::size_t kWholeBytes = 4096;  // longer messages have a body
inline constexpr std::size_t kBodyUnit = 32;
inline constexpr std::size_t kMaxErrorText = 300;
inline constexpr std::size_t kMaxEdgeBytes = kFrameHeaderBytes + kFrameTrailerBytes + kBodyUnit - 1;

// The size of the body of a message of more than kWholeBytes.
constexpr std::size_t body_bytes(std::size_t bytes) {
  return (bytes - kFrameHeaderBytes - kFrameTrailerBytes) / kBodyUnit * kBodyUnit;
}

// The bytes to write now of a piece with `left` unwritten bytes, to a connection with room for `free`. Whole units
// remain after the write, so a packet that leaves before the next write ends with a float. A network card that rounds
// floats takes the bytes of each packet for whole floats (card/docs/card.md).
constexpr std::size_t write_bytes(std::size_t left, std::size_t free) {
  if (free >= left) return left;
  const std::size_t rest = (left - free + kBodyUnit - 1) / kBodyUnit * kBodyUnit;
  return rest < left ? left - rest : 0;
}

void write_record(const Record& record, std::uint8_t* to);
// Empty if no rank writes such a record: an unknown kind, a field that this kind does not use, or an impossible length.
std::optional<Record> read_record(ByteView bytes);
// The number of bytes that follow a record.
std::size_t bytes_behind(const Record& record);

// The checksums of one direction of a control connection.
using RecordChecksum = std::uint64_t;
RecordChecksum first_checksum(const Secret& key, Rank from, Rank to);
RecordChecksum next_checksum(RecordChecksum last, ByteView bytes);
// Appends the record, its bytes in up to two parts, and the checksums. Updates `last`.
void append_record(const Record& record, ByteView first, ByteView second, RecordChecksum& last,
                   std::vector<std::uint8_t>& out);

}  // namespace tithe::tcp
