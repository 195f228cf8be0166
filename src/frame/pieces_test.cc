// SPDX-License-Identifier: Apache-2.0
#include "frame/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "frame/tagger.h"

namespace tithe {
namespace {

using Buffer = std::vector<std::uint8_t>;

constexpr FrameHeader kHeader{
    .codec = CodecId{1}, .run = 5, .round = 7, .tensor = 9, .source = 2, .values = 1};
constexpr std::size_t kSizes[] = {0, 4, 255, 256, kPieceBytes, kPieceBytes + 1, 5 * kPieceBytes + 77};

// The covers of the tag and of the checksum.
constexpr std::pair<Cover, Cover> kCovers[] = {
    {Cover::kHeader, Cover::kFrame}, {Cover::kFrame, Cover::kFrame}, {Cover::kHeader, Cover::kHeader}};

Buffer some_bytes(std::size_t n) {
  Buffer out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(i * 131 + i / 7);
  return out;
}

struct Sealed {
  FrameHeader header;
  Buffer frame;
};
Sealed sealed(std::size_t payload, Tagger* tagger, Cover cover, Cover checksum = Cover::kFrame) {
  FrameHeader h = kHeader;
  h.checksum = checksum;
  h.payload_bytes = payload;
  Buffer frame(kFrameHeaderBytes + payload + (tagger == nullptr ? 0 : kFrameTrailerBytes));
  std::ranges::copy(some_bytes(payload), frame.begin() + kFrameHeaderBytes);
  const Status s = tagger == nullptr ? seal_frame(h, frame) : seal_frame(h, frame, *tagger, 11, cover);
  EXPECT_TRUE(s.ok()) << s.what();
  return {h, frame};
}

Tagger tagger_of(std::uint8_t seed) {
  Secret key;
  key.fill(seed);
  return Tagger(key);
}

TEST(Checksum, DoesNotDependOnHowBytesAreSplit) {
  const Buffer bytes = some_bytes(100'000);
  const std::uint64_t whole = checksum(ByteView(bytes).first(56), ByteView(bytes).subspan(56));
  for (const std::size_t cut : {1U, 31U, 56U, 255U, 256U, 4096U, 16384U, 99'999U}) {
    Checksum sum;
    for (std::size_t at = 0; at < bytes.size(); at += cut)
      sum.add(ByteView(bytes).subspan(at, std::min(cut, bytes.size() - at)));
    EXPECT_EQ(sum.value(), whole) << cut;
  }
}

TEST(Pieces, equal_in_any_split) {
  Tagger tagger = tagger_of(1);
  for (const std::size_t n : kSizes)
    for (Tagger* by : {static_cast<Tagger*>(nullptr), &tagger})
      for (const auto& [cover, checksum] : kCovers) {
        SCOPED_TRACE(n);
        const Sealed made = sealed(n, by, cover, checksum);
        const Buffer payload = some_bytes(n);
        FrameChecksum frame_checksum(made.header, by == nullptr ? std::nullopt : std::optional(cover));
        for (std::size_t at = 0; at < n; at += 1000)
          frame_checksum.add(ByteView(payload).subspan(at, std::min<std::size_t>(1000, n - at)));
        Buffer again(made.frame.size());
        std::ranges::copy(payload, again.begin() + kFrameHeaderBytes);
        const Status s = by == nullptr
                             ? seal_frame(made.header, again, frame_checksum.checksum())
                             : seal_frame(made.header, again, frame_checksum.checksum(), *by, 11, cover);
        ASSERT_TRUE(s.ok()) << s.what();
        EXPECT_EQ(again, made.frame);

        std::size_t read = 0;
        const EachPiece each = [&](std::size_t at, std::size_t bytes) {
          EXPECT_EQ(at, read);
          EXPECT_LE(bytes, kPieceBytes);
          read += bytes;
        };
        const Result<ParsedFrame> parsed =
            parse_frame(again, Reading{.tagger = by, .least = cover, .checksum = checksum, .each = &each});
        ASSERT_TRUE(parsed.ok()) << parsed.status().what();
        EXPECT_EQ(read, n);
        EXPECT_EQ(parsed->header.source, made.header.source);
        EXPECT_EQ(parsed->payload.data(), again.data() + kFrameHeaderBytes);
        EXPECT_EQ(parsed->payload.size(), n);
      }
}

// The check covers the received bytes, not later changes to the pieces.
TEST(Pieces, in_order) {
  Sealed made = sealed(3 * kPieceBytes, nullptr, Cover::kHeader);
  const EachPiece clears = [&](std::size_t at, std::size_t bytes) {
    std::fill_n(made.frame.begin() + static_cast<std::ptrdiff_t>(kFrameHeaderBytes + at), bytes, 0);
  };
  EXPECT_TRUE(parse_frame(made.frame, nullptr, Cover::kHeader, clears).ok());
  EXPECT_FALSE(parse_frame(made.frame, nullptr, Cover::kHeader, clears).ok())
      << "the first call cleared the payload";
}

TEST(Pieces, ChangedBytesAreRefused) {
  Tagger tagger = tagger_of(1);
  const EachPiece each = [](std::size_t, std::size_t) {};
  const std::size_t n = 2 * kPieceBytes + 5;
  for (Tagger* by : {static_cast<Tagger*>(nullptr), &tagger})
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{26}, kFrameHeaderBytes, kFrameHeaderBytes + n - 1}) {
      Sealed made = sealed(n, by, Cover::kHeader);
      made.frame[at] ^= 1;
      const Result<ParsedFrame> here = parse_frame(made.frame, by, Cover::kHeader, each);
      const Result<ParsedFrame> there =
          by == nullptr ? parse_frame(made.frame) : parse_frame(made.frame, *by, Cover::kHeader);
      ASSERT_FALSE(here.ok()) << at;
      EXPECT_EQ(here.status().code(), there.status().code());
      EXPECT_EQ(here.status().what(), there.status().what());
      EXPECT_EQ(here.status().peer(), there.status().peer());
    }
}

// A network card may change the payload without detection; a changed header, which it must not touch, is detected.
TEST(HeaderAlone, payloads_may_change_and_headers_may_not) {
  Tagger tagger = tagger_of(1);
  const std::size_t n = kPieceBytes + 8;
  for (Tagger* by : {static_cast<Tagger*>(nullptr), &tagger})
    for (const bool in_pieces : {false, true}) {
      Sealed made = sealed(n, by, Cover::kHeader, Cover::kHeader);
      std::size_t read = 0;
      const EachPiece each = [&](std::size_t, std::size_t bytes) { read += bytes; };
      const Reading how{.tagger = by, .checksum = Cover::kHeader, .each = in_pieces ? &each : nullptr};
      for (std::size_t at = kFrameHeaderBytes; at < kFrameHeaderBytes + n; at += 1001) made.frame[at] ^= 1;
      const Result<ParsedFrame> parsed = parse_frame(made.frame, how);
      ASSERT_TRUE(parsed.ok()) << parsed.status().what();
      EXPECT_EQ(parsed->header, made.header);
      EXPECT_EQ(read, in_pieces ? n : 0);
      for (std::size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
        made.frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
        EXPECT_FALSE(parse_frame(made.frame, how).ok()) << bit;
        made.frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      }
    }
}

TEST(HeaderAlone, both_ranks_must_enable_it) {
  Tagger tagger = tagger_of(1);
  const EachPiece touches = [](std::size_t, std::size_t) {
    FAIL() << "called before the checksum's cover was checked";
  };
  for (Tagger* by : {static_cast<Tagger*>(nullptr), &tagger})
    for (const Cover is : {Cover::kHeader, Cover::kFrame})
      for (const EachPiece* each : {static_cast<const EachPiece*>(nullptr), &touches}) {
        const Cover expected = is == Cover::kHeader ? Cover::kFrame : Cover::kHeader;
        const Sealed made = sealed(4 * kPieceBytes, by, Cover::kHeader, is);
        const Status s =
            parse_frame(made.frame, Reading{.tagger = by, .checksum = expected, .each = each}).status();
        EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
        EXPECT_EQ(s.peer(), made.header.source);
        EXPECT_NE(s.what().find("lossy_card="), std::string::npos) << s.what();
      }
  const Sealed made = sealed(64, nullptr, Cover::kHeader, Cover::kHeader);
  EXPECT_EQ(parse_frame(made.frame).status().code(), Code::kMismatch)
      << "the default is a checksum over the whole frame";
}

TEST(HeaderAlone, needs_uncompressed_floats_without_a_payload_tag) {
  Tagger tagger = tagger_of(1);
  const auto code = [&](auto change, Cover cover) {
    FrameHeader h = kHeader;
    h.payload_bytes = 16;
    h.checksum = Cover::kHeader;
    change(h);
    Buffer frame(kFrameHeaderBytes + 16 + kFrameTrailerBytes);
    return seal_frame(h, frame, tagger, 1, cover).code();
  };
  EXPECT_EQ(code([](FrameHeader&) {}, Cover::kHeader), Code::kOk);
  EXPECT_EQ(code([](FrameHeader&) {}, Cover::kFrame), Code::kInvalid);
  EXPECT_EQ(code([](FrameHeader& h) { h.codec = CodecId{2}; }, Cover::kHeader), Code::kInvalid);
  EXPECT_EQ(code([](FrameHeader& h) { h.flags = kFlagConcat; }, Cover::kHeader), Code::kInvalid);
  EXPECT_EQ(code([](FrameHeader& h) { h.flags = kFlagNonFinite, h.payload_bytes = 0; }, Cover::kHeader),
            Code::kOk);
}

}  // namespace
}  // namespace tithe
