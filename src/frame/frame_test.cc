// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/frame.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "tithe/seam/codec.h"

namespace tithe {
namespace {

FrameHeader some_header(std::size_t payload_bytes) {
  return {.codec = CodecId{1},
          .run = 0x0102030405060708,
          .round = 9,
          .tensor = 10,
          .chunk = 11,
          .phase = 1,
          .flags = 0,
          .source = 3,
          .parts = 1,
          .values = payload_bytes / 4,
          .payload_bytes = payload_bytes,
          .plan = 0x1112131415161718};
}

// Memory for a header, then `payload_bytes` arbitrary bytes.
std::vector<std::uint8_t> unsealed(std::size_t payload_bytes) {
  std::vector<std::uint8_t> frame(kFrameHeaderBytes);
  for (std::size_t i = 0; i < payload_bytes; ++i) frame.push_back(static_cast<std::uint8_t>(mix64(i)));
  return frame;
}

std::vector<std::uint8_t> sealed(const FrameHeader& header) {
  auto frame = unsealed(header.payload_bytes);
  const Status s = seal_frame(header, frame);
  EXPECT_TRUE(s.ok()) << s.what();
  return frame;
}

// The payload of a concat frame: the lengths, then the parts. All bytes of a part are its index.
std::vector<std::uint8_t> concat_frame(const std::vector<std::size_t>& lengths, FrameHeader* header) {
  std::size_t bytes = 8 * lengths.size();
  for (const std::size_t n : lengths) bytes += n;
  *header = some_header(bytes);
  header->flags = kFlagConcat;
  header->parts = static_cast<std::uint16_t>(lengths.size());
  std::vector<std::uint8_t> frame(kFrameHeaderBytes + 8 * lengths.size());
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    wire::put(&frame[kFrameHeaderBytes + 8 * k], std::uint64_t{lengths[k]});
    frame.insert(frame.end(), lengths[k], static_cast<std::uint8_t>(k));
  }
  return frame;
}

// XXH3 changes its algorithm at 240.
constexpr std::size_t kPayloadSizes[] = {0, 1, 7, 8, 185, 186, 200, 512, 4097};

TEST(Frame, SealedFramesRoundTrip) {
  for (const std::size_t n : kPayloadSizes) {
    const FrameHeader header = some_header(n);
    const auto frame = sealed(header);
    auto parsed = parse_frame(frame);
    ASSERT_TRUE(parsed.ok()) << parsed.status().what();
    EXPECT_EQ(parsed->header, header);
    EXPECT_EQ(parsed->payload.data(), frame.data() + kFrameHeaderBytes);
    EXPECT_EQ(parsed->payload.size(), n);
    EXPECT_TRUE(check_frame(parsed->header, header, n).ok());
  }
}

TEST(Frame, LayoutMatchesTheDocument) {
  const auto f = sealed(some_header(8));
  EXPECT_EQ(f[0], 'T');
  EXPECT_EQ(f[3], 'H');
  EXPECT_EQ(f[4], kFrameVersion);
  EXPECT_EQ(f[5], 64);
  EXPECT_EQ(wire::get<std::uint16_t>(&f[6]), 1);
  EXPECT_EQ(wire::get<std::uint64_t>(&f[8]), 0x0102030405060708U);
  EXPECT_EQ(wire::get<std::uint32_t>(&f[16]), 9U);
  EXPECT_EQ(wire::get<std::uint32_t>(&f[20]), 10U);
  EXPECT_EQ(wire::get<std::uint16_t>(&f[24]), 11U);
  EXPECT_EQ(f[26], 1);
  EXPECT_EQ(f[27], 0);
  EXPECT_EQ(wire::get<std::uint16_t>(&f[28]), 3U);
  EXPECT_EQ(wire::get<std::uint16_t>(&f[30]), 1U);
  EXPECT_EQ(wire::get<std::uint64_t>(&f[32]), 2U);
  EXPECT_EQ(wire::get<std::uint64_t>(&f[40]), 8U);
  EXPECT_EQ(wire::get<std::uint64_t>(&f[48]), 0x1112131415161718U);
}

TEST(Frame, EveryTruncationAndExtensionIsRefused) {
  for (const std::size_t n : kPayloadSizes) {
    auto frame = sealed(some_header(n));
    for (std::size_t cut = 0; cut < frame.size(); ++cut)
      ASSERT_FALSE(parse_frame(ByteView(frame).first(cut)).ok()) << n << " payload bytes cut to " << cut;
    frame.push_back(0);
    EXPECT_EQ(parse_frame(frame).status().code(), Code::kCorrupt);
  }
}

TEST(Frame, EverySingleBitFlipIsRefused) {
  for (const std::size_t n : kPayloadSizes) {
    auto frame = sealed(some_header(n));
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      ASSERT_FALSE(parse_frame(frame).ok()) << n << " payload bytes, bit " << bit;
      frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
    EXPECT_TRUE(parse_frame(frame).ok());
  }
}

TEST(Frame, OtherVersionIsAMismatchThatNamesTheSource) {
  auto frame = sealed(some_header(4));
  frame[4] = kFrameVersion + 1;
  const Status s = parse_frame(frame).status();
  EXPECT_EQ(s.code(), Code::kMismatch);
  EXPECT_EQ(s.peer(), 3);
}

TEST(Frame, SealAndParseRefuseTheSameHeaders) {
  auto frame = unsealed(16);
  EXPECT_EQ(seal_frame(some_header(17), frame).code(), Code::kTooSmall);
  EXPECT_EQ(seal_frame(some_header(0), Bytes(frame).first(63)).code(), Code::kTooSmall);
  const auto code = [&](std::uint8_t flags, std::uint16_t parts, std::size_t bytes) {
    FrameHeader h = some_header(bytes);
    h.flags = flags;
    h.parts = parts;
    return seal_frame(h, frame).code();
  };
  EXPECT_EQ(code(8, 1, 0), Code::kInvalid);
  EXPECT_EQ(code(kFlagConcat | kFlagEmpty, 1, 8), Code::kInvalid);
  EXPECT_EQ(code(0, 2, 16), Code::kInvalid);
  EXPECT_EQ(code(0, 0, 16), Code::kInvalid);
  EXPECT_EQ(code(kFlagConcat, kMaxParts + 1, 16), Code::kInvalid);
  EXPECT_EQ(code(kFlagConcat, 3, 16), Code::kInvalid);
  EXPECT_EQ(code(kFlagNonFinite, 1, 4), Code::kInvalid);
  EXPECT_EQ(code(kFlagEmpty, 1, 4), Code::kInvalid);
  EXPECT_EQ(frame, unsealed(16)) << "a refused seal writes nothing";
  EXPECT_EQ(code(kFlagNonFinite, 1, 0), Code::kOk);
  EXPECT_EQ(code(kFlagEmpty, 1, 0), Code::kOk);
}

TEST(Frame, CheckNamesTheFieldAndTheRankThatDiffers) {
  const FrameHeader expected = some_header(40);
  const auto check = [&](auto change, Code code, std::string_view field) {
    FrameHeader got = expected;
    got.source = 5;
    change(got);
    const Status s = check_frame(got, expected, 40);
    EXPECT_EQ(s.code(), code) << field;
    EXPECT_EQ(s.peer(), 5);
    EXPECT_NE(s.what().find(field), std::string::npos) << s.what();
  };
  check([](FrameHeader& h) { h.run++; }, Code::kMismatch, "run");
  check([](FrameHeader& h) { h.plan++; }, Code::kMismatch, "plan");
  check([](FrameHeader& h) { h.codec = CodecId{999}; }, Code::kMismatch, "codec");
  check([](FrameHeader& h) { h.values++; }, Code::kMismatch, "values");
  check([](FrameHeader& h) { h.round++; }, Code::kCorrupt, "round");
  check([](FrameHeader& h) { h.tensor++; }, Code::kCorrupt, "tensor");
  check([](FrameHeader& h) { h.chunk++; }, Code::kCorrupt, "chunk");
  check([](FrameHeader& h) { h.phase++; }, Code::kCorrupt, "phase");
  check([](FrameHeader& h) { h.payload_bytes++; }, Code::kCorrupt, "payload");
}

TEST(Frame, PartsKeepTheirOrder) {
  FrameHeader header;
  const std::vector<std::size_t> lengths = {3, 0, 9, 1};
  auto frame = concat_frame(lengths, &header);
  ASSERT_TRUE(seal_frame(header, frame).ok());
  auto parsed = parse_frame(frame);
  ASSERT_TRUE(parsed.ok()) << parsed.status().what();
  ByteView parts[4];
  ASSERT_TRUE(split_parts(*parsed, parts).ok());
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(parts[k].size(), lengths[k]);
    for (const std::uint8_t b : parts[k]) EXPECT_EQ(b, k);
  }
  EXPECT_EQ(split_parts(*parsed, std::span(parts).first(3)).code(), Code::kTooSmall);
}

TEST(Frame, InconsistentLengthsAreCorrupt) {
  const auto code = [](std::uint64_t first, std::uint64_t second) {
    FrameHeader header;
    auto frame = concat_frame({3, 4}, &header);
    wire::put(&frame[kFrameHeaderBytes], first);
    wire::put(&frame[kFrameHeaderBytes + 8], second);
    EXPECT_TRUE(seal_frame(header, frame).ok());
    auto parsed = parse_frame(frame);
    EXPECT_TRUE(parsed.ok());
    ByteView parts[2];
    return split_parts(*parsed, parts).code();
  };
  EXPECT_EQ(code(3, 4), Code::kOk);
  EXPECT_EQ(code(4, 3), Code::kOk);
  EXPECT_EQ(code(3, 3), Code::kCorrupt);
  EXPECT_EQ(code(3, 5), Code::kCorrupt);
  EXPECT_EQ(code(8, 0), Code::kCorrupt);
  EXPECT_EQ(code(~std::uint64_t{0}, 8), Code::kCorrupt);  // overflows to 7
}

TEST(Frame, FrameWithoutPayloadHasNoParts) {
  FrameHeader header = some_header(0);
  header.flags = kFlagNonFinite;
  const auto frame = sealed(header);
  auto parsed = parse_frame(frame);
  ASSERT_TRUE(parsed.ok());
  ByteView part;
  EXPECT_EQ(split_parts(*parsed, {&part, 1}).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tithe
