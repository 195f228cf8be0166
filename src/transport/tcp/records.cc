// SPDX-License-Identifier: Apache-2.0
// Encoding of records and their chained checksums. read_record() accepts only records that a correct rank can write.
#include "transport/tcp/records.h"

#include <xxhash.h>

#include "base/bytes.h"
#include "transport/tcp/tcp_handshake.h"

namespace tithe::tcp {

namespace {

constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 48;  // more memory than any machine has

bool makes_sense(const Record& r) {
  const bool stream = r.kind == Kind::kPiece;
  if (!stream && r.stream != 0) return false;
  switch (r.kind) {
    case Kind::kWhole:
      return r.n <= kWholeBytes;
    case Kind::kLong:
      return r.n > kWholeBytes && r.n < kMaxMessage;
    case Kind::kPiece:
      return r.stream < kMaxStreams && r.n > 0 && r.n % kBodyUnit == 0 && r.n < kMaxMessage;
    case Kind::kGrant:
      return true;
    case Kind::kEnd:
      return r.n == 0;
    case Kind::kFarewell:
      return r.n <= kMaxErrorText && r.about == 0;
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
  if (record.kind == Kind::kWhole || record.kind == Kind::kFarewell) return record.n;
  if (record.kind == Kind::kLong) return record.n - body_bytes(record.n);
  return 0;
}

RecordChecksum first_checksum(const Secret& key, Rank from, Rank to) {
  std::uint8_t who[8];
  wire::put(who, static_cast<std::uint32_t>(from));
  wire::put(who + 4, static_cast<std::uint32_t>(to));
  return wire::get<RecordChecksum>(derive(key, "tithe control", {who}).data());
}

RecordChecksum next_checksum(RecordChecksum last, ByteView bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), last);
}

void append_record(const Record& record, ByteView first, ByteView second, RecordChecksum& last,
                   std::vector<std::uint8_t>& out) {
  const auto seal = [&](std::size_t from) {
    last = next_checksum(last, ByteView(out).subspan(from));
    out.resize(out.size() + kChecksumBytes);
    wire::put(&out[out.size() - kChecksumBytes], last);
  };
  const std::size_t at = out.size();
  out.resize(at + kRecordBytes);
  write_record(record, &out[at]);
  seal(at);
  if (first.empty() && second.empty()) return;
  const std::size_t behind = out.size();
  out.insert(out.end(), first.begin(), first.end());
  out.insert(out.end(), second.begin(), second.end());
  seal(behind);
}

}  // namespace tithe::tcp
