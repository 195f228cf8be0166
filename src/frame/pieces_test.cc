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
    .codec = CodecId{3}, .run = 5, .round = 7, .tensor = 9, .source = 2, .values = 1};
constexpr std::size_t kSizes[] = {0, 4, 255, 256, kPieceBytes, kPieceBytes + 1, 5 * kPieceBytes + 77};

Buffer some_bytes(std::size_t n) {
  Buffer out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(i * 131 + i / 7);
  return out;
}

struct Sealed {
  FrameHeader header;
  Buffer frame;
};
Sealed sealed(std::size_t payload, Tagger* tagger, Cover cover) {
  FrameHeader h = kHeader;
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

TEST(Checksum, IsTheSameHoweverBytesAreCut) {
  const Buffer bytes = some_bytes(100'000);
  const std::uint64_t whole = checksum(ByteView(bytes).first(56), ByteView(bytes).subspan(56));
  for (const std::size_t cut : {1U, 31U, 56U, 255U, 256U, 4096U, 16384U, 99'999U}) {
    Checksum sum;
    for (std::size_t at = 0; at < bytes.size(); at += cut)
      sum.add(ByteView(bytes).subspan(at, std::min(cut, bytes.size() - at)));
    EXPECT_EQ(sum.value(), whole) << cut;
  }
}

TEST(Pieces, alike) {
  Tagger tagger = tagger_of(1);
  for (const std::size_t n : kSizes)
    for (Tagger* by : {static_cast<Tagger*>(nullptr), &tagger})
      for (const Cover cover : {Cover::kHeader, Cover::kFrame}) {
        SCOPED_TRACE(n);
        const Sealed made = sealed(n, by, cover);
        const Buffer payload = some_bytes(n);
        Sealing sealing(made.header, by == nullptr ? std::nullopt : std::optional(cover));
        for (std::size_t at = 0; at < n; at += 1000)
          sealing.add(ByteView(payload).subspan(at, std::min<std::size_t>(1000, n - at)));
        Buffer again(made.frame.size());
        std::ranges::copy(payload, again.begin() + kFrameHeaderBytes);
        const Status s = by == nullptr ? seal_frame(made.header, again, sealing.checksum())
                                       : seal_frame(made.header, again, sealing.checksum(), *by, 11, cover);
        ASSERT_TRUE(s.ok()) << s.what();
        EXPECT_EQ(again, made.frame);

        std::size_t read = 0;
        const EachPiece each = [&](std::size_t at, std::size_t bytes) {
          EXPECT_EQ(at, read);
          EXPECT_LE(bytes, kPieceBytes);
          read += bytes;
        };
        const Result<ParsedFrame> parsed = parse_frame(again, by, cover, each);
        ASSERT_TRUE(parsed.ok()) << parsed.status().what();
        EXPECT_EQ(read, n);
        EXPECT_EQ(parsed->header.source, made.header.source);
        EXPECT_EQ(parsed->payload.data(), again.data() + kFrameHeaderBytes);
        EXPECT_EQ(parsed->payload.size(), n);
      }
}

// Whatever is done with the pieces: it is the bytes that came that count.
TEST(Pieces, in_order) {
  Sealed made = sealed(3 * kPieceBytes, nullptr, Cover::kHeader);
  const EachPiece clears = [&](std::size_t at, std::size_t bytes) {
    std::fill_n(made.frame.begin() + static_cast<std::ptrdiff_t>(kFrameHeaderBytes + at), bytes, 0);
  };
  EXPECT_TRUE(parse_frame(made.frame, nullptr, Cover::kHeader, clears).ok());
  EXPECT_FALSE(parse_frame(made.frame, nullptr, Cover::kHeader, clears).ok()) << "it was cleared";
}

TEST(Pieces, ChangedBytesAreRefusedAsElsewhere) {
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

}  // namespace
}  // namespace tithe
