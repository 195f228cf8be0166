// SPDX-License-Identifier: Apache-2.0
// Arrays of variable size: the bytes are exactly those of lang/run/codings.h, and no others are accepted.
#include "lang/run/codings.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tithe::lang {
namespace {

using Codes = std::vector<std::uint32_t>;

using Payload = std::vector<std::uint8_t>;

Item item_of(Coding coding, unsigned bits = 1, std::size_t full = 0) {
  Item item;
  item.array = true;
  item.coding = coding;
  item.bits = bits;
  item.full = full;
  return item;
}

Payload written(const Item& item, const Codes& codes, const Codes& widths = {}) {
  Payload out(item_bytes(item, codes.size()) + 1, 0xee);
  const std::uint8_t* end = put_codes(item, codes, widths, out.data());
  EXPECT_EQ(out.back(), 0xee);
  out.resize(static_cast<std::size_t>(end - out.data()));
  return out;
}

// Reads the written bytes, and rejects every proper prefix of them.
void goes_both_ways(const Item& item, const Codes& codes, const Codes& widths = {}) {
  const Payload bytes = written(item, codes, widths);
  Codes back(codes.size(), 99);
  ASSERT_EQ(get_codes(item, bytes, widths, back), bytes.size());
  EXPECT_EQ(back, codes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_EQ(get_codes(item, ByteView(bytes).first(cut), widths, back), std::nullopt) << cut;
}

bool reads(const Item& item, const Payload& bytes, std::size_t len, const Codes& widths = {}) {
  Codes codes(len);
  const auto got = get_codes(item, bytes, widths, codes);
  return got && *got == bytes.size();
}

TEST(Codings, FiveTritsPerByte) {
  const Item trits = item_of(Coding::kTrits, 2);
  EXPECT_EQ(written(trits, {2, 0, 1, 2, 0}), Payload{2 * 81 + 0 + 9 + 2 * 3 + 0});
  EXPECT_EQ(written(trits, {2, 0}), Payload{2 * 81 + 9 + 3 + 1});  // filled with ones
  EXPECT_EQ(written(trits, {}), Payload{});
}

TEST(Codings, RunsOfOnesAreShortened) {
  const Item trits = item_of(Coding::kTrits, 2);
  const auto ones = [](std::size_t bytes) { return Codes(5 * bytes, 1); };
  EXPECT_EQ(written(trits, ones(1)), Payload{121});
  EXPECT_EQ(written(trits, ones(2)), Payload{243});
  EXPECT_EQ(written(trits, ones(14)), Payload{255});
  EXPECT_EQ(written(trits, ones(15)), (Payload{255, 121}));
  EXPECT_EQ(written(trits, ones(28)), (Payload{255, 255}));
  EXPECT_EQ(written(trits, ones(30)), (Payload{255, 255, 243}));
  EXPECT_EQ(written(trits, Codes(69, 1)), Payload{255});
}

TEST(Codings, TritsHaveOneValidForm) {
  const Item trits = item_of(Coding::kTrits, 2);
  EXPECT_TRUE(reads(trits, {255, 121}, 75));
  EXPECT_FALSE(reads(trits, {121, 121}, 10));  // is 243
  EXPECT_FALSE(reads(trits, {121, 243}, 15));  // is 244
  EXPECT_FALSE(reads(trits, {243, 243}, 20));
  EXPECT_FALSE(reads(trits, {121, 255}, 75));
  EXPECT_FALSE(reads(trits, {255}, 65));  // longer than the array
  EXPECT_TRUE(reads(trits, {255}, 66));
  EXPECT_FALSE(reads(trits, {0}, 4));  // its last digit is past the end, and must be 1
  EXPECT_TRUE(reads(trits, {1}, 4));
}

TEST(Codings, IndexListsAreACountAndIndices) {
  const Item places = item_of(Coding::kPlaces, 1, 64);  // 6 bits each
  Codes codes(64, 0);
  codes[1] = codes[2] = codes[63] = 1;
  const unsigned packed = 1U | 2U << 6 | 63U << 12;
  EXPECT_EQ(written(places, codes),
            (Payload{3, static_cast<std::uint8_t>(packed), static_cast<std::uint8_t>(packed >> 8),
                     static_cast<std::uint8_t>(packed >> 16)}));
  EXPECT_TRUE(reads(places, {1, 5}, 64));
  EXPECT_FALSE(reads(places, {1, 5 | 0x40}, 64));     // a bit past the last code
  EXPECT_FALSE(reads(places, {1, 5}, 5));             // no such value
  EXPECT_FALSE(reads(places, {2, 5 | 0x40, 1}, 64));  // 5 twice
  EXPECT_FALSE(reads(places, {2, 2 | 0x40, 0}, 64));  // 2, then 1
  EXPECT_FALSE(reads(places, {2, 0, 0}, 1));
  EXPECT_EQ(count_bytes(255), 1U);
  EXPECT_EQ(count_bytes(256), 2U);
  EXPECT_EQ(place_bits(500), 9U);
  EXPECT_EQ(place_bits(512), 9U);
  EXPECT_EQ(place_bits(513), 10U);
}

TEST(Codings, EachCodeHasItsWidth) {
  const Item item = item_of(Coding::kWidths, 32);
  EXPECT_EQ(written(item, {0x12, 0, 0x3456, 0x789abcde}, {8, 0, 16, 32}),
            (Payload{0x12, 0x56, 0x34, 0xde, 0xbc, 0x9a, 0x78}));
  EXPECT_EQ(written(item, {1, 3, 0}, {1, 2, 0}), Payload{7});
  EXPECT_FALSE(reads(item, {8}, 2, {1, 2}));  // a bit past the last code
}

TEST(Codings, PartialBlocksEndInZeros) {
  const Item item = item_of(Coding::kCodes, 2, 8);
  EXPECT_EQ(written(item, {3, 0, 1}), (Payload{0x13, 0}));
  EXPECT_TRUE(reads(item, {0x13, 0}, 3));
  EXPECT_FALSE(reads(item, {0x13, 1}, 3));
  EXPECT_FALSE(reads(item, {0x53, 0}, 3));
}

TEST(Codings, WrittenCodesRoundTrip) {
  std::mt19937 random(3);
  for (const std::size_t len : {0, 1, 4, 5, 6, 64, 71, 500})
    for (unsigned part = 1; part <= 64; part *= 8) {
      Codes trits(len, 1), bools(len, 0), codes(len), widths(len);
      for (std::size_t i = 0; i < len; ++i) {
        if (random() % part == 0) trits[i] = static_cast<std::uint32_t>(random() % 3);
        if (random() % part == 0) bools[i] = 1;
        widths[i] = static_cast<std::uint32_t>(random() % 33);
        codes[i] = static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << widths[i]) - 1));
      }
      goes_both_ways(item_of(Coding::kTrits, 2), trits);
      goes_both_ways(item_of(Coding::kPlaces, 1, 500), bools);
      goes_both_ways(item_of(Coding::kPlaces), bools);
      goes_both_ways(item_of(Coding::kWidths, 32), codes, widths);
    }
}

TEST(Codings, AnyBytesGiveAStatus) {
  std::mt19937 random(4);
  std::size_t taken = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    Payload bytes(random() % 12);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    const std::size_t len = random() % 40;
    const Item item = turn % 2 == 0 ? item_of(Coding::kTrits, 2) : item_of(Coding::kPlaces, 1, 40);
    Codes codes(len);
    const auto got = get_codes(item, bytes, {}, codes);
    if (!got) continue;
    ++taken;
    ASSERT_LE(*got, bytes.size());
    bytes.resize(*got);
    ASSERT_EQ(written(item, codes), bytes);  // one form for each array
  }
  EXPECT_GT(taken, 100U);
}

}  // namespace
}  // namespace tithe::lang
