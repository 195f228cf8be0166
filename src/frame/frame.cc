// SPDX-License-Identifier: Apache-2.0
// One function writes all kinds of frames (write_header), and one reads them (parse_frame with a Reading): with or
// without a tag, with a checksum over the whole frame or the header, in one pass or piece by piece.
#include "tithe/seam/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "frame/checksum.h"
#include "frame/pieces.h"
#include "frame/tagger.h"

namespace tithe {
namespace {

// The offset of each field (docs/reference/format.md, "Header").
enum Offset : std::size_t {
  kAtMagic = 0,
  kAtVersion = 4,
  kAtHeaderBytes = 5,
  kAtCodec = 6,
  kAtRun = 8,
  kAtRound = 16,
  kAtTensor = 20,
  kAtChunk = 24,
  kAtPhase = 26,
  kAtFlags = 27,
  kAtSource = 28,
  kAtParts = 30,
  kAtValues = 32,
  kAtPayloadBytes = 40,
  kAtPlan = 48,
  kAtChecksum = 56,
};
static_assert(kAtChecksum + sizeof(std::uint64_t) == kFrameHeaderBytes);

constexpr unsigned kAllFlags = kFlagNonFinite | kFlagConcat | kFlagEmpty;

// Only on the wire: the kind of trailer after the payload. At most one of the two.
constexpr std::uint8_t kFlagTagged = 8;        // a tag over the header
constexpr std::uint8_t kFlagTaggedWhole = 16;  // a tag over header and payload
constexpr std::uint8_t kTagFlags = kFlagTagged | kFlagTaggedWhole;

// Only on the wire: the checksum covers only the header. For frames whose payload is plain floats.
constexpr std::uint8_t kFlagHeaderAlone = 32;
constexpr CodecId kFp32{1};  // tithe/codecs.def

// A contradiction in the header, independent of the receiver's expectations; empty: none.
std::string contradiction(const FrameHeader& h) {
  if ((h.flags & ~kAllFlags) != 0 || std::popcount(h.flags) > 1)
    return fmt::format("flags {:#04x} are unknown", h.flags);
  if (h.parts == 0 || h.parts > kMaxParts)
    return fmt::format("{} parts, must be 1 .. {}", h.parts, kMaxParts);
  if (h.parts != 1 && h.flags != kFlagConcat) return fmt::format("{} parts without the concat flag", h.parts);
  if ((h.flags & (kFlagNonFinite | kFlagEmpty)) != 0 && h.payload_bytes != 0)
    return fmt::format("a payload of {} bytes, but flags {:#04x} allow no payload", h.payload_bytes, h.flags);
  if (h.flags == kFlagConcat && h.payload_bytes / 8 < h.parts)
    return fmt::format("{} bytes cannot hold the lengths of {} parts", h.payload_bytes, h.parts);
  if (h.checksum == Cover::kHeader && (h.codec != kFp32 || h.flags == kFlagConcat))
    return fmt::format("a checksum over the header alone, of codec {} with flags {:#04x}",
                       static_cast<int>(h.codec), h.flags);
  return {};
}

// Writes all fields except the checksum.
void put_fields(const FrameHeader& header, std::uint8_t tag_flag, std::uint8_t* p) {
  wire::put(p + kAtMagic, kFrameMagic);
  wire::put(p + kAtVersion, kFrameVersion);
  wire::put(p + kAtHeaderBytes, static_cast<std::uint8_t>(kFrameHeaderBytes));
  wire::put(p + kAtCodec, static_cast<std::uint16_t>(header.codec));
  wire::put(p + kAtRun, header.run);
  wire::put(p + kAtRound, header.round);
  wire::put(p + kAtTensor, header.tensor);
  wire::put(p + kAtChunk, header.chunk);
  wire::put(p + kAtPhase, header.phase);
  const std::uint8_t alone = header.checksum == Cover::kHeader ? kFlagHeaderAlone : std::uint8_t{0};
  wire::put(p + kAtFlags, static_cast<std::uint8_t>(header.flags | tag_flag | alone));
  wire::put(p + kAtSource, header.source);
  wire::put(p + kAtParts, header.parts);
  wire::put(p + kAtValues, header.values);
  wire::put(p + kAtPayloadBytes, header.payload_bytes);
  wire::put(p + kAtPlan, header.plan);
}

// The part of the payload that the checksum covers.
ByteView covered(const FrameHeader& header, ByteView payload) {
  return header.checksum == Cover::kFrame ? payload : ByteView{};
}

// known: the checksum, if it was computed before.
Status write_header(const FrameHeader& header, Bytes frame, std::uint8_t tag_flag, std::size_t trailer,
                    std::optional<std::uint64_t> known) {
  if (frame.size() < kFrameHeaderBytes + trailer ||
      frame.size() - kFrameHeaderBytes - trailer < header.payload_bytes)
    return {Code::kTooSmall, fmt::format("frame: room for {} bytes, header and payload need {} + {}",
                                         frame.size(), kFrameHeaderBytes + trailer, header.payload_bytes)};
  if (std::string wrong = contradiction(header); !wrong.empty())
    return {Code::kInvalid, "frame: " + std::move(wrong)};
  std::uint8_t* p = frame.data();
  put_fields(header, tag_flag, p);
  const ByteView payload = frame.subspan(kFrameHeaderBytes, header.payload_bytes);
  const ByteView fields = ByteView(frame).first(kAtChecksum);
  wire::put(p + kAtChecksum, known ? *known : checksum(fields, covered(header, payload)));
  return {};
}

std::uint8_t flag_of(Cover cover) { return cover == Cover::kFrame ? kFlagTaggedWhole : kFlagTagged; }

// The bytes that a tag covers follow from its flag, which is in the header.
Tag tag_of(Tagger& tagger, std::uint64_t number, ByteView header, ByteView payload, std::uint8_t flag) {
  const auto source = wire::get<std::uint16_t>(header.data() + kAtSource);
  return tagger.tag(source, number, {header, flag == kFlagTaggedWhole ? payload : ByteView{}});
}

Status seal_tagged(const FrameHeader& header, Bytes frame, std::optional<std::uint64_t> known, Tagger& tagger,
                   std::uint64_t number, Cover cover) {
  const std::uint8_t flag = flag_of(cover);
  if (cover == Cover::kFrame && header.checksum == Cover::kHeader)
    return {Code::kInvalid, "frame: a tag over a payload that may change in transit"};
  TITHE_TRY(write_header(header, frame, flag, kFrameTrailerBytes, known));
  const ByteView payload = frame.subspan(kFrameHeaderBytes, header.payload_bytes);
  const Bytes trailer = frame.subspan(kFrameHeaderBytes + header.payload_bytes, kFrameTrailerBytes);
  const Tag tag = tag_of(tagger, number, frame.first(kFrameHeaderBytes), payload, flag);
  wire::put(trailer.data(), number);
  std::copy(tag.begin(), tag.end(), trailer.begin() + sizeof number);
  return {};
}

std::uint64_t checksum_by_piece(ByteView header, ByteView payload, Cover cover, const EachPiece& each) {
  Checksum sum;
  sum.add(header);
  for (std::size_t at = 0; at < payload.size(); at += kPieceBytes) {
    const ByteView piece = payload.subspan(at, std::min(kPieceBytes, payload.size() - at));
    if (cover == Cover::kFrame) sum.add(piece);
    each(at, piece.size());
  }
  return sum.value();
}

}  // namespace

// The order of the checks determines the blame. A frame's source is trusted only after its tag was valid, or if
// frames have no tags. `how.each` gets the payload only after header and tag are valid.
Result<ParsedFrame> parse_frame(ByteView bytes, const Reading& how) {
  Tagger* const tagger = how.tagger;
  if (bytes.size() < kFrameHeaderBytes)
    return Status(Code::kCorrupt,
                  fmt::format("frame: {} bytes; a header has {}", bytes.size(), kFrameHeaderBytes));
  const std::uint8_t* p = bytes.data();
  if (const auto magic = wire::get<std::uint32_t>(p + kAtMagic); magic != kFrameMagic)
    return Status(Code::kCorrupt, fmt::format("frame: starts with {:#010x}, not with TITH", magic));

  FrameHeader h;
  h.codec = static_cast<CodecId>(wire::get<std::uint16_t>(p + kAtCodec));
  h.run = wire::get<std::uint64_t>(p + kAtRun);
  h.round = wire::get<std::uint32_t>(p + kAtRound);
  h.tensor = wire::get<std::uint32_t>(p + kAtTensor);
  h.chunk = wire::get<std::uint16_t>(p + kAtChunk);
  h.phase = wire::get<std::uint8_t>(p + kAtPhase);
  h.flags = wire::get<std::uint8_t>(p + kAtFlags);
  h.source = wire::get<std::uint16_t>(p + kAtSource);
  h.parts = wire::get<std::uint16_t>(p + kAtParts);
  h.values = wire::get<std::uint64_t>(p + kAtValues);
  h.payload_bytes = wire::get<std::uint64_t>(p + kAtPayloadBytes);
  h.plan = wire::get<std::uint64_t>(p + kAtPlan);

  // With tags, the source in a header counts only after the tag was checked.
  const auto refuse = [&](Code code, std::string_view why) {
    return Status(code, fmt::format("frame: {}", why), tagger == nullptr ? int{h.source} : Status::kNoPeer);
  };
  if (const auto version = wire::get<std::uint8_t>(p + kAtVersion); version != kFrameVersion)
    return refuse(Code::kMismatch,
                  fmt::format("format version {}, this build reads version {}", version, kFrameVersion));
  if (const auto header_bytes = wire::get<std::uint8_t>(p + kAtHeaderBytes);
      header_bytes != kFrameHeaderBytes)
    return refuse(Code::kCorrupt, fmt::format("a header of {} bytes, version {} has {}", header_bytes,
                                              kFrameVersion, kFrameHeaderBytes));
  const auto tag_flag = static_cast<std::uint8_t>(h.flags & kTagFlags);
  if ((h.flags & kFlagHeaderAlone) != 0) h.checksum = Cover::kHeader;
  h.flags = static_cast<std::uint8_t>(h.flags & ~(kTagFlags | kFlagHeaderAlone));
  if (tagger == nullptr && tag_flag != 0)
    return refuse(Code::kMismatch, "it has a tag, which only ranks of its job can check");
  if (tagger != nullptr && tag_flag == 0) return refuse(Code::kCorrupt, "it does not have the job's tag");
  const std::size_t trailer = tag_flag == 0 ? 0 : kFrameTrailerBytes;
  if (bytes.size() < kFrameHeaderBytes + trailer || tag_flag == kTagFlags)
    return refuse(Code::kCorrupt, fmt::format("{} bytes cannot hold header and trailer", bytes.size()));
  const ByteView payload = bytes.subspan(kFrameHeaderBytes, bytes.size() - kFrameHeaderBytes - trailer);
  if (h.payload_bytes != payload.size())
    return refuse(Code::kCorrupt, fmt::format("the header states {} payload bytes, the frame has {}",
                                              h.payload_bytes, payload.size()));
  std::uint64_t number = 0;
  if (tagger != nullptr) {
    const ByteView end = bytes.last(kFrameTrailerBytes);
    number = wire::get<std::uint64_t>(end.data());
    const Tag right = tag_of(*tagger, number, bytes.first(kFrameHeaderBytes), payload, tag_flag);
    if (!equal_secrets(right, end.subspan(8)))
      return refuse(Code::kCorrupt,
                    "its tag is wrong: it was changed in transit, or sent by a process of another job");
    if (how.least == Cover::kFrame && tag_flag != kFlagTaggedWhole)
      return Status(Code::kMismatch,
                    fmt::format("frame from rank {}: its tag does not cover the payload: set the same "
                                "authenticate= on all ranks",
                                h.source),
                    h.source);
  }
  if (std::string wrong = contradiction(h); !wrong.empty()) return refuse(Code::kCorrupt, wrong);
  if (h.checksum == Cover::kHeader && tag_flag == kFlagTaggedWhole)
    return refuse(Code::kCorrupt, "a tag over a payload that has no checksum");
  const ByteView fields = bytes.first(kAtChecksum);
  const bool by_piece = how.each != nullptr && h.checksum == how.checksum;
  if ((by_piece ? checksum_by_piece(fields, payload, h.checksum, *how.each)
                : checksum(fields, covered(h, payload))) != wire::get<std::uint64_t>(p + kAtChecksum))
    return refuse(Code::kCorrupt, "checksum differs: the bytes were changed in transit");
  if (h.checksum != how.checksum)
    return Status(Code::kMismatch,
                  fmt::format("frame from rank {}: its checksum covers {}: give the transport the same "
                              "lossy_card= on all ranks",
                              h.source,
                              h.checksum == Cover::kHeader ? "only the header"
                                                           : "the payload, but only the header was expected"),
                  h.source);
  return ParsedFrame{h, payload, number};
}

Status seal_frame(const FrameHeader& header, Bytes frame) { return write_header(header, frame, 0, 0, {}); }

Status seal_frame(const FrameHeader& header, Bytes frame, Tagger& tagger, std::uint64_t number, Cover cover) {
  return seal_tagged(header, frame, {}, tagger, number, cover);
}

FrameChecksum::FrameChecksum(const FrameHeader& header, std::optional<Cover> cover) {
  std::uint8_t fields[kFrameHeaderBytes];
  put_fields(header, cover ? flag_of(*cover) : std::uint8_t{0}, fields);
  payload_ = header.checksum == Cover::kFrame;
  sum_.add(ByteView(fields).first(kAtChecksum));
}

Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum) {
  return write_header(header, frame, 0, 0, checksum);
}

Status seal_frame(const FrameHeader& header, Bytes frame, std::uint64_t checksum, Tagger& tagger,
                  std::uint64_t number, Cover cover) {
  return seal_tagged(header, frame, checksum, tagger, number, cover);
}

Result<ParsedFrame> parse_frame(ByteView bytes) { return parse_frame(bytes, Reading{}); }

Result<ParsedFrame> parse_frame(ByteView bytes, Tagger& tagger, Cover least) {
  return parse_frame(bytes, Reading{.tagger = &tagger, .least = least});
}

Result<ParsedFrame> parse_frame(ByteView bytes, Tagger* tagger, Cover least, const EachPiece& each) {
  return parse_frame(bytes, Reading{.tagger = tagger, .least = least, .each = &each});
}

Status check_frame(const FrameHeader& got, const FrameHeader& expected, std::size_t max_bytes) {
  const auto differs = [&](Code code, std::string_view field, std::uint64_t is, std::uint64_t should) {
    return Status(code,
                  fmt::format("frame from rank {}: {} is {}, expected {}", got.source, field, is, should),
                  got.source);
  };
  const auto id = [](CodecId codec) { return static_cast<std::uint64_t>(codec); };
  if (got.run != expected.run) return differs(Code::kMismatch, "run", got.run, expected.run);
  if (got.plan != expected.plan) return differs(Code::kMismatch, "plan", got.plan, expected.plan);
  if (got.codec != expected.codec)
    return differs(Code::kMismatch, "codec", id(got.codec), id(expected.codec));
  if (got.round != expected.round) return differs(Code::kCorrupt, "round", got.round, expected.round);
  if (got.tensor != expected.tensor) return differs(Code::kCorrupt, "tensor", got.tensor, expected.tensor);
  if (got.chunk != expected.chunk) return differs(Code::kCorrupt, "chunk", got.chunk, expected.chunk);
  if (got.phase != expected.phase) return differs(Code::kCorrupt, "phase", got.phase, expected.phase);
  if (got.values != expected.values) return differs(Code::kMismatch, "values", got.values, expected.values);
  if (got.payload_bytes > max_bytes)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: payload of {} bytes, at most {} expected", got.source,
                        got.payload_bytes, max_bytes),
            got.source};
  return {};
}

// Without kFlagConcat, the payload is the only part. With kFlagConcat, it is the lengths of the parts (u64 each),
// then the parts.
Status split_parts(const ParsedFrame& frame, std::span<ByteView> out) {
  const FrameHeader& h = frame.header;
  if ((h.flags & (kFlagNonFinite | kFlagEmpty)) != 0)
    return {Code::kInvalid, fmt::format("frame: flags {:#04x} mean that it has no payload", h.flags),
            h.source};
  if (out.size() < h.parts)
    return {Code::kTooSmall, fmt::format("frame: {} parts, room for {}", h.parts, out.size()), h.source};
  if (h.flags != kFlagConcat) {
    out[0] = frame.payload;
    return {};
  }
  const std::size_t table = std::size_t{8} * h.parts;
  if (frame.payload.size() < table)
    return {Code::kCorrupt,
            fmt::format("frame: {} bytes cannot hold the lengths of {} parts", frame.payload.size(), h.parts),
            h.source};
  ByteView rest = frame.payload.subspan(table);
  // All lengths are checked first, so that nothing is written if they do not add up.
  std::uint64_t left = rest.size();
  for (std::size_t k = 0; k < h.parts; ++k) {
    const auto bytes = wire::get<std::uint64_t>(frame.payload.data() + 8 * k);
    if (bytes > left)
      return {Code::kCorrupt,
              fmt::format("frame: part {} of {} has {} bytes, {} are left", k, h.parts, bytes, left),
              h.source};
    left -= bytes;
  }
  if (left != 0)
    return {Code::kCorrupt, fmt::format("frame: {} bytes after the last of {} parts", left, h.parts),
            h.source};
  for (std::size_t k = 0; k < h.parts; ++k) {
    const auto bytes = wire::get<std::uint64_t>(frame.payload.data() + 8 * k);
    out[k] = rest.first(bytes);
    rest = rest.subspan(bytes);
  }
  return {};
}

}  // namespace tithe
