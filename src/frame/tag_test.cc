// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstring>

#include "base/bytes.h"
#include "frame/tagger.h"

namespace tithe {
namespace {

using Block = std::array<std::uint8_t, 16>;

Secret key_of(std::uint8_t first) {
  Secret key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(first + i);
  return key;
}

Block aes(const Secret& key, const Block& in) {
  Block out{};
  int n = 0;
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex2(context, EVP_aes_256_ecb(), key.data(), nullptr, nullptr);
  EVP_CIPHER_CTX_set_padding(context, 0);
  EVP_EncryptUpdate(context, out.data(), &n, in.data(), 16);
  EVP_CIPHER_CTX_free(context);
  return out;
}

// x * h in the field of GCM: polynomials over bits; the first bit of a block is the lowest power.
Block times(const Block& x, const Block& h) {
  Block z{}, v = h;
  for (std::size_t i = 0; i < 128; ++i) {
    if ((x[i / 8] >> (7 - i % 8) & 1) != 0)
      for (std::size_t k = 0; k < 16; ++k) z[k] ^= v[k];
    const bool carry = (v[15] & 1) != 0;
    for (std::size_t k = 15; k > 0; --k) v[k] = static_cast<std::uint8_t>(v[k] >> 1 | v[k - 1] << 7);
    v[0] = static_cast<std::uint8_t>(v[0] >> 1);
    if (carry) v[0] ^= 0xe1;
  }
  return z;
}

// GMAC as defined in NIST SP 800-38D.
Tag readable_tag(const Secret& key, std::uint32_t source, std::uint64_t number, ByteView message) {
  const Block h = aes(key, {});
  Block sum{};
  const auto take = [&](const Block& block) {
    for (std::size_t k = 0; k < 16; ++k) sum[k] ^= block[k];
    sum = times(sum, h);
  };
  for (std::size_t at = 0; at < message.size(); at += 16) {
    Block block{};
    std::memcpy(block.data(), &message[at], std::min<std::size_t>(16, message.size() - at));
    take(block);
  }
  Block lengths{};
  for (std::size_t k = 0; k < 8; ++k)
    lengths[7 - k] = static_cast<std::uint8_t>(std::uint64_t{message.size()} * 8 >> (8 * k));
  take(lengths);
  Block first{};
  wire::put(first.data(), source);
  wire::put(first.data() + 4, number);
  first[15] = 1;
  const Block mask = aes(key, first);
  for (std::size_t k = 0; k < 16; ++k) sum[k] ^= mask[k];
  return sum;
}

TEST(Tagger, equals_the_reference) {
  const Secret key = key_of(3);
  Tagger tagger(key);
  std::vector<std::uint8_t> message;
  for (const std::size_t n : {0UL, 1UL, 15UL, 16UL, 17UL, 64UL, 4097UL}) {
    while (message.size() < n) message.push_back(static_cast<std::uint8_t>(message.size() * 7));
    const std::size_t half = n / 3;
    EXPECT_EQ(tagger.tag(5, n + 1, {ByteView(message).first(half), ByteView(message).subspan(half)}),
              readable_tag(key, 5, n + 1, message))
        << n;
  }
}

struct Sealed {
  FrameHeader header{.codec = static_cast<CodecId>(1),
                     .round = 7,
                     .tensor = 3,
                     .source = 2,
                     .values = 25,
                     .payload_bytes = 100};
  std::vector<std::uint8_t> bytes =
      std::vector<std::uint8_t>(kFrameHeaderBytes + 100 + kFrameTrailerBytes, 9);
  explicit Sealed(Tagger& tagger, Cover cover, std::uint64_t number = 1) {
    EXPECT_TRUE(seal_frame(header, bytes, tagger, number, cover).ok());
  }
};

TEST(TaggedFrame, round_trips) {
  Tagger tagger(key_of(1));
  for (const Cover cover : {Cover::kHeader, Cover::kFrame}) {
    const Sealed frame(tagger, cover, 41);
    const auto parsed = parse_frame(frame.bytes, tagger, cover);
    ASSERT_TRUE(parsed.ok()) << parsed.status().what();
    EXPECT_EQ(parsed->header, frame.header);
    EXPECT_EQ(parsed->number, 41U);
    EXPECT_EQ(parsed->payload.size(), 100U);
  }
}

TEST(TaggedFrame, any_changed_bit_is_refused_without_naming_a_rank) {
  Tagger tagger(key_of(1));
  for (const Cover cover : {Cover::kHeader, Cover::kFrame}) {
    const Sealed frame(tagger, cover);
    for (std::size_t bit = 0; bit < 8 * frame.bytes.size(); ++bit) {
      auto changed = frame.bytes;
      changed[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      const auto parsed = parse_frame(changed, tagger, cover);
      ASSERT_FALSE(parsed.ok()) << bit;
      EXPECT_EQ(parsed.status().peer(), Status::kNoPeer) << bit;
    }
  }
}

TEST(TaggedFrame, another_payload_with_a_right_checksum_is_refused) {
  Tagger tagger(key_of(1)), stranger(key_of(2));
  Sealed frame(tagger, Cover::kFrame);
  std::vector<std::uint8_t> forged = frame.bytes;
  forged[kFrameHeaderBytes] ^= 1;
  ASSERT_TRUE(seal_frame(frame.header, forged, stranger, 1, Cover::kFrame).ok());
  EXPECT_EQ(parse_frame(forged, tagger, Cover::kHeader).status().code(), Code::kCorrupt);
}

TEST(TaggedFrame, without_its_tag_it_is_refused) {
  Tagger tagger(key_of(1));
  Sealed frame(tagger, Cover::kFrame);
  std::vector<std::uint8_t> bare(frame.bytes.begin(), frame.bytes.end() - kFrameTrailerBytes);
  ASSERT_TRUE(seal_frame(frame.header, bare).ok());
  ASSERT_TRUE(parse_frame(bare).ok());
  EXPECT_EQ(parse_frame(bare, tagger, Cover::kHeader).status().code(), Code::kCorrupt);
  // A tagged frame is not read without the key either.
  EXPECT_EQ(parse_frame(frame.bytes).status().code(), Code::kMismatch);
}

TEST(TaggedFrame, header_tag_is_refused_if_payload_tags_are_required) {
  Tagger tagger(key_of(1));
  const Status s = parse_frame(Sealed(tagger, Cover::kHeader).bytes, tagger, Cover::kFrame).status();
  EXPECT_EQ(s.code(), Code::kMismatch);
  EXPECT_EQ(s.peer(), 2);  // the tag was valid, so this rank made the frame
  EXPECT_NE(s.what().find("authenticate="), std::string::npos) << s.what();
}

TEST(TaggedFrame, truncated_frames_are_refused) {
  Tagger tagger(key_of(1));
  const Sealed frame(tagger, Cover::kFrame);
  for (std::size_t n = 0; n < frame.bytes.size(); ++n)
    EXPECT_FALSE(parse_frame(ByteView(frame.bytes).first(n), tagger, Cover::kHeader).ok()) << n;
}

TEST(Tags, nonces_are_unique) {
  Tags tags(key_of(1), 2);
  EXPECT_NE(tags.next(), tags.next());
  EXPECT_NE(tags.next_control(), tags.next_control());
  EXPECT_NE(tags.next_control() & Tags::kControlNumber, 0U);
}

}  // namespace
}  // namespace tithe
