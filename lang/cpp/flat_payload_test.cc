// SPDX-License-Identifier: Apache-2.0
// Trits by fives, against the interpreter's, which takes them one by one.
#include "lang/cpp/flat_payload.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "lang/run/codings.h"

namespace tithe::lang {
namespace {

using Codes = std::vector<std::uint32_t>;

using Payload = std::vector<std::uint8_t>;

Checked program_of_trits() {
  Checked program;
  Item& item = program.items.emplace_back();
  item.array = true;
  item.coding = Coding::kTrits;
  item.bits = 2;
  return program;
}

// Long runs of ones, short ones, and none.
Codes codes_of(std::size_t n, std::uint32_t rare, std::uint64_t seed) {
  Codes codes(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t draw = draw32(seed, static_cast<std::uint32_t>(i));
    if (draw % rare == 0) codes[i] = draw >> 16 & 1U ? 2 : 0;
  }
  return codes;
}

TEST(Flat, TritsEqualTheInterpretersBytes) {
  const Checked program = program_of_trits();
  for (std::size_t n = 0; n < 420; ++n)
    for (const std::uint32_t rare : {1U, 2U, 7U, 40U, 1000U}) {
      const Codes codes = codes_of(n, rare, n * 8 + rare);
      Payload flat(flat_bytes(program, n)), want((n + 4) / 5), got((n + 4) / 5);
      ASSERT_EQ(flat.size(), (2 * n + 7) / 8);
      for (std::size_t i = 0; i < n; ++i) flat[i / 4] |= static_cast<std::uint8_t>(codes[i] << (2 * (i % 4)));
      want.resize(
          static_cast<std::size_t>(put_codes(program.items[0], codes, {}, want.data()) - want.data()));
      got.resize(to_payload(program, flat.data(), n, got.data()));
      ASSERT_EQ(got, want) << n << " " << rare;
      Payload back(flat.size(), 0xee);
      ASSERT_TRUE(to_flat(program, want, n, back.data()));
      ASSERT_EQ(back, flat) << n << " " << rare;
    }
}

// Arbitrary bytes: rejected by both, or read as the same codes.
TEST(Flat, InvalidBytesGetTheInterpretersStatus) {
  const Checked program = program_of_trits();
  std::size_t read = 0, refused = 0;
  for (std::uint32_t turn = 0; turn < 20000; ++turn) {
    const auto draw = [&](std::uint32_t k) { return draw32(turn, k); };
    const std::size_t n = draw(0) % 60;
    Payload bytes(draw(1) % 14);
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      const std::uint32_t d = draw(static_cast<std::uint32_t>(2 + k));
      constexpr std::uint8_t kOften[] = {121, 243, 244, 255, 254, 0, 242, 120};
      bytes[k] = d % 3 == 0 ? static_cast<std::uint8_t>(d >> 8) : kOften[d >> 8 & 7];
    }
    Codes codes(n);
    const auto took = get_codes(program.items[0], bytes, {}, codes);
    const bool want = took && *took == bytes.size();
    Payload flat(flat_bytes(program, n) + 1, 0xee);
    ASSERT_EQ(to_flat(program, bytes, n, flat.data()), want) << turn;
    ASSERT_EQ(flat.back(), 0xee) << turn;
    (want ? read : refused) += 1;
    for (std::size_t i = 0; want && i < n; ++i)
      ASSERT_EQ(flat[i / 4] >> (2 * (i % 4)) & 3U, codes[i]) << turn;
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(refused, 5000U);
}

}  // namespace
}  // namespace tithe::lang
