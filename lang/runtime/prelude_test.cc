// SPDX-License-Identifier: Apache-2.0
// The prelude of C++ programs, compiled unchanged for the vectors of this file's target; the built-in programs
// compile it for the others.
#include "lang/runtime/prelude.h"

#include <gtest/gtest.h>
#include <stddef.h>
#include <stdint.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <string>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/rng.h"
#include "lang/run/half_bits.h"
#include "lang/runtime/object.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wdeprecated-enum-enum-conversion"
namespace text {
// In the order of prelude.def.
// clang-format off
#include "lang/runtime/prelude_types.h"
#include "lang/runtime/prelude_avx512.h"
#include "lang/runtime/prelude_halves.h"
#include "lang/runtime/prelude_avx2.h"
#include "lang/runtime/prelude_plain.h"
#include "lang/runtime/prelude_masks.h"
#include "lang/runtime/prelude_scalars.h"
#include "lang/runtime/prelude_numbers.h"
#include "lang/runtime/prelude_codes.h"
#include "lang/runtime/prelude_passes.h"
#include "lang/runtime/prelude_tables.h"
// clang-format on
}  // namespace text
#pragma GCC diagnostic pop

namespace tithe::lang {
namespace {

TEST(Prelude, ContainsTheListedFiles) {
  struct Text {
    std::string file;
    const char* embedded;
  };
  const Text all[] = {
#define TITHE_PRELUDE_CPP(name, file) {#file ".h", kPrelude##name},
#define TITHE_PRELUDE_CUDA(name, file) {#file ".h", kPrelude##name},
#include "lang/runtime/prelude.def"
#undef TITHE_PRELUDE_CPP
#undef TITHE_PRELUDE_CUDA
  };
  for (const Text& one : all) {
    std::ifstream in(TITHE_SOURCE_DIR "/lang/runtime/" + one.file, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(in), {}};
    ASSERT_GT(whole.size(), 200U) << one.file;
    EXPECT_EQ(whole.substr(whole.find('\n') + 1), one.embedded) << one.file;
  }
}

#define SAME_PLACE(ours, theirs, member) EXPECT_EQ(offsetof(ours, member), offsetof(theirs, member))

TEST(Prelude, HasTheInterfaceOfObjects) {
  EXPECT_EQ(sizeof(ObjectCall), sizeof(text::Call));
  SAME_PLACE(ObjectCall, text::Call, settings);
  SAME_PLACE(ObjectCall, text::Call, n);
  SAME_PLACE(ObjectCall, text::Call, key);
  SAME_PLACE(ObjectCall, text::Call, shared_key);
  SAME_PLACE(ObjectCall, text::Call, block);
  SAME_PLACE(ObjectCall, text::Call, known);
  SAME_PLACE(ObjectCall, text::Call, agreed);
  SAME_PLACE(ObjectCall, text::Call, agreed_ranks);
  SAME_PLACE(ObjectCall, text::Call, max_ranks);
  SAME_PLACE(ObjectCall, text::Call, field_bits);
  SAME_PLACE(ObjectCall, text::Call, pack);
  SAME_PLACE(ObjectCall, text::Call, unpack);
  EXPECT_EQ(sizeof(ObjectAnswer), sizeof(text::Answer));
  SAME_PLACE(ObjectAnswer, text::Answer, finite);
  SAME_PLACE(ObjectAnswer, text::Answer, broken);
  SAME_PLACE(ObjectAnswer, text::Answer, block);
  EXPECT_EQ(sizeof(Object), sizeof(text::Object));
  SAME_PLACE(Object, text::Object, interface);
  SAME_PLACE(Object, text::Object, combination);
  SAME_PLACE(Object, text::Object, key);
  SAME_PLACE(Object, text::Object, encode);
  SAME_PLACE(Object, text::Object, check);
  SAME_PLACE(Object, text::Object, decode);
}

TEST(Prelude, HasTheInterpretersBinary16) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const std::uint32_t back = from_half_bits(h);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(text::from_half_bits(h)), back) << h;
    for (const std::uint32_t bits : {back, back + 0xfff, back + 0x1000, back + 0x1001, h << 16 | h})
      ASSERT_EQ(text::half_bits(std::bit_cast<float>(bits)), half_bits(bits)) << bits;
  }
}

// Draws sixteen numbers at a time.
TEST(Prelude, DrawsTheLibrarysNumbers) {
  constexpr std::uint64_t kKey = 0x0123456789abcdefULL;
  for (const int bits : {1, 4, 23, 24, 25, 32})
    for (const std::uint32_t first : {0U, 16U, 1024U, 0xfffffff0U}) {
      std::uint32_t drawn[16];
      text::store_u(drawn, text::draw(kKey, first, bits));
      for (std::uint32_t j = 0; j < 16; ++j) {
        const std::uint32_t index = first + j;
        const std::uint32_t want = bits <= 23   ? draw_half(kKey, index, bits)
                                   : bits == 24 ? draw_high(kKey, index) >> 8
                                                : draw32(kKey, index) >> (32 - bits);
        ASSERT_EQ(drawn[j], want) << bits << " bits of " << index;
      }
    }
}

}  // namespace
}  // namespace tithe::lang
