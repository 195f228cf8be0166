// SPDX-License-Identifier: Apache-2.0
#include "frame/checksum.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace tithe {
namespace {

// XXH3 changes its algorithm at 16, 128 and 240 bytes, and processes blocks of 1024 bytes.
TEST(Checksum, EqualsTheReferenceAtEverySizeAndOffset) {
  std::vector<std::uint8_t> bytes(70'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(mix64(i));
  const ByteView all(bytes);
  for (std::size_t n = 0; n < 2200; ++n)
    ASSERT_EQ(checksum(all.first(56), all.subspan(64, n)), checksum_ref(all.first(56), all.subspan(64, n)))
        << n;
  for (std::size_t from = 0; from < 65; ++from)
    for (const std::size_t n : {4095U, 4096U, 65'536U})
      ASSERT_EQ(checksum(all.first(56), all.subspan(from, n)),
                checksum_ref(all.first(56), all.subspan(from, n)))
          << n << " bytes from " << from;
}

TEST(Checksum, EveryBitOfHeaderAndPayloadChangesIt) {
  std::vector<std::uint8_t> bytes(5000, 7);
  const ByteView all(bytes);
  const std::uint64_t before = checksum(all.first(56), all.subspan(64));
  for (const std::size_t at : {0U, 55U, 64U, 3000U, 4999U}) {
    bytes[at] ^= 1;
    EXPECT_NE(checksum(all.first(56), all.subspan(64)), before) << at;
    bytes[at] ^= 1;
  }
}

}  // namespace
}  // namespace tithe
