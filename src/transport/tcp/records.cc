// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/records.h"

#include "base/bytes.h"
#include "transport/tcp/greeting.h"

namespace tithe::tcp {

namespace {

constexpr std::uint64_t kMostMessage = std::uint64_t{1} << 48;  // no machine holds more

bool makes_sense(const Record& r) {
  const bool stream = r.kind == Kind::kPiece;
  if (!stream && r.stream != 0) return false;
  switch (r.kind) {
    case Kind::kWhole:
      return r.n <= kWholeBytes;
    case Kind::kLong:
      return r.n > kWholeBytes && r.n < kMostMessage;
    case Kind::kPiece:
      return r.stream < kMostStreams && r.n > 0 && r.n % kBodyUnit == 0 && r.n < kMostMessage;
    case Kind::kGrant:
      return true;
    case Kind::kEnd:
      return r.n == 0;
    case Kind::kFarewell:
    case Kind::kAnswer:
      return r.n == 0 && r.about == 0;
  }
  return false;
}

}  // namespace

void write_record(const Record& record, std::uint8_t* to) {
  to[0] = static_cast<std::uint8_t>(record.kind);
  to[1] = 0;
  wire::put(to + 2, static_cast<std::uint16_t>(record.stream));
  wire::put(to + 4, record.about);
  wire::put(to + 8, record.n);
}

std::optional<Record> read_record(ByteView bytes) {
  if (bytes.size() != kRecordBytes || bytes[1] != 0) return {};
  const Record r{.kind = static_cast<Kind>(bytes[0]),
                 .stream = wire::get<std::uint16_t>(&bytes[2]),
                 .about = wire::get<std::uint32_t>(&bytes[4]),
                 .n = wire::get<std::uint64_t>(&bytes[8])};
  if (!makes_sense(r)) return {};
  return r;
}

std::size_t bytes_behind(const Record& record) {
  if (record.kind == Kind::kWhole) return record.n;
  if (record.kind == Kind::kLong) return record.n - body_bytes(record.n);
  return 0;
}

}  // namespace tithe::tcp
