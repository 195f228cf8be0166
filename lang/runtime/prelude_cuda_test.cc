// SPDX-License-Identifier: Apache-2.0
// The prelude of kernels, compiled unchanged for a CPU (tests/support/grid_on_cpu.h).
#include <gtest/gtest.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "lang/cuda/kernel_call.h"
#include "lang/run/half_bits.h"
#include "support/grid_on_cpu.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wdeprecated-enum-float-conversion"
#pragma GCC diagnostic ignored "-Wunused-function"
namespace text {
// In the order of prelude.def, with the file that C++ uses too.
// clang-format off
#include "lang/runtime/prelude_cuda_types.h"
#include "lang/runtime/prelude_scalars.h"
#include "lang/runtime/prelude_cuda.h"
#include "lang/runtime/prelude_cuda_bytes.h"
#include "lang/runtime/prelude_cuda_tiles.h"
#include "lang/runtime/prelude_cuda_lists.h"
#include "lang/runtime/prelude_cuda_lengths.h"
#include "lang/runtime/prelude_cuda_trits.h"
#include "lang/runtime/prelude_cuda_ints.h"
// clang-format on
}  // namespace text
// Likewise for launches by the host through plans.
#define TITHE_PLANS
#undef DEV
#undef INL
#undef HOST
#undef API
#undef LAUNCH
#undef PLAN
#undef FIND_CALLS
#undef ONE_CALL
#undef EACH_CALL
#undef THIS_CALL
#undef TAKE_CALL
namespace planned {
// clang-format off
#include "lang/runtime/prelude_cuda_types.h"
#include "lang/runtime/prelude_scalars.h"
#include "lang/runtime/prelude_cuda.h"
#include "lang/runtime/prelude_cuda_bytes.h"
#include "lang/runtime/prelude_cuda_values.h"
// clang-format on
}  // namespace planned
#pragma GCC diagnostic pop

namespace tithe::lang {
namespace {

#define SAME_PLACE(member) EXPECT_EQ(offsetof(KernelCall, member), offsetof(text::Call, member))

TEST(PreludeCuda, HasTheTestLauncher) {
  EXPECT_EQ(sizeof(KernelCall), sizeof(text::Call));
  EXPECT_EQ(offsetof(KernelCall, within), offsetof(text::Call, found));
  SAME_PLACE(settings);
  SAME_PLACE(n);
  SAME_PLACE(key);
  SAME_PLACE(shared_key);
  SAME_PLACE(grad);
  SAME_PLACE(residual);
  EXPECT_EQ(offsetof(KernelCall, residual_out), offsetof(text::Call, left));
  SAME_PLACE(payload);
  SAME_PLACE(payload_bytes);
  SAME_PLACE(base);
  SAME_PLACE(out);
  SAME_PLACE(bytes);
  SAME_PLACE(answer);
  SAME_PLACE(scratch);
  SAME_PLACE(agreed);
  SAME_PLACE(agreed_ranks);
  SAME_PLACE(field_bits);
  SAME_PLACE(divide);
  SAME_PLACE(plan);
}

TEST(PreludeCuda, HasThePlanOfTheHost) {
  EXPECT_EQ(sizeof(KernelPlan), sizeof(planned::Plan));
  EXPECT_EQ(offsetof(KernelPlan, scratch), offsetof(planned::Plan, scratch));
  EXPECT_EQ(offsetof(KernelPlan, launches), offsetof(planned::Plan, launches));
  EXPECT_EQ(offsetof(KernelPlan, launch), offsetof(planned::Plan, launch));
  EXPECT_EQ(offsetof(KernelLaunch, kernel), offsetof(planned::Launch, kernel));
  EXPECT_EQ(sizeof(KernelLaunch), sizeof(planned::Launch));
  EXPECT_EQ(sizeof(KernelBatch), sizeof(planned::Batch));
  EXPECT_EQ(offsetof(KernelBatch, ends), offsetof(planned::Batch, ends));
  EXPECT_EQ(offsetof(KernelBatch, tensors), offsetof(planned::Batch, tensors));
  EXPECT_EQ(offsetof(KernelBatch, row), offsetof(planned::Batch, row));
  EXPECT_EQ(offsetof(KernelBatch, rounds), offsetof(planned::Batch, rounds));
  EXPECT_EQ(kKernelThreads, unsigned{planned::kThreads});
  EXPECT_EQ(kEachValues, unsigned{planned::kEach});
}

TEST(PreludeCuda, HasTheInterpretersBinary16) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const std::uint32_t back = from_half_bits(h);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(text::from_half_bits(h)), back) << h;
    for (const std::uint32_t bits : {back, back + 0xfff, back + 0x1000, back + 0x1001, h << 16 | h})
      ASSERT_EQ(text::half_bits(std::bit_cast<float>(bits)), half_bits(bits)) << bits;
  }
}

TEST(PreludeCuda, DrawsTheLibrarysNumbers) {
  constexpr std::uint64_t kKey = 0x0123456789abcdefULL;
  for (const int bits : {1, 4, 23, 24, 25, 32})
    for (const std::uint32_t index : {0U, 1U, 16U, 31U, 1024U, 0xffffffffU}) {
      const std::uint32_t want = bits <= 23   ? draw_half(kKey, index, bits)
                                 : bits == 24 ? draw_high(kKey, index) >> 8
                                              : draw32(kKey, index) >> (32 - bits);
      ASSERT_EQ(text::draw(kKey, index, bits), want) << bits << " bits of " << index;
    }
}

// The codes of a tile of `values` values become the bits of an array, at any address, and are read from it.
template <int kBits, bool kWhole>
void expect_codes(text::U values, std::size_t shift) {
  using text::U;
  using Field = text::Field<kBits>;
  constexpr U kGroup = 4, kOwn = 8, kFields = kOwn / Field::kCodes;
  const auto code = [&](U i) { return text::mixed(i + kBits) >> (32 - kBits); };
  const std::size_t bytes = (values * std::size_t{kBits} + 7) / 8;
  std::vector<std::uint8_t> want(shift + bytes + 8, 0xee);
  std::fill_n(want.begin() + static_cast<std::ptrdiff_t>(shift), bytes, std::uint8_t{0});
  for (std::size_t bit = 0; bit < values * std::size_t{kBits}; ++bit)
    if ((code(static_cast<U>(bit / kBits)) >> bit % kBits & 1) != 0)
      want[shift + bit / 8] = static_cast<std::uint8_t>(want[shift + bit / 8] | 1U << bit % 8);
  std::vector<std::uint8_t> made(want.size(), 0xee);
  U shared[kGroup * kFields];
  for (U thread = 0; thread < kGroup; ++thread) {
    U field[kFields] = {};
    for (U k = 0; k < kOwn; ++k)
      if (const U at = text::own_value<kGroup>(thread, k); at < values)
        text::put_code<kBits>(field, k, code(at));
    if (Field::kField == 32)
      text::store_fields<kBits, kWhole, kGroup>(made.data() + shift, bytes, thread, field);
    else
      text::share_fields<kBits, kGroup>(shared, thread, field);
  }
  for (U thread = 0; thread < kGroup && Field::kField != 32; ++thread)
    text::pack_fields<kBits, kGroup>(shared, made.data() + shift, bytes, thread);
  ASSERT_EQ(made, want) << kBits << " bits, " << values << " values at " << shift;
  for (U thread = 0; thread < kGroup; ++thread) {
    U field[kFields];
    text::load_fields<kBits, kWhole, kGroup>(want.data() + shift, bytes, thread, field);
    for (U k = 0; k < kOwn; ++k) {
      const U at = text::own_value<kGroup>(thread, k);
      if (at < values) {
        ASSERT_EQ(text::code_of<kBits>(field, k), code(at)) << kBits << " bits, value " << at;
      }
    }
  }
}
template <int... kBits>
void expect_codes(std::integer_sequence<int, kBits...>) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    (expect_codes<kBits + 1, true>(32, shift), ...);
    for (const text::U values : {0U, 1U, 7U, 20U, 31U}) (expect_codes<kBits + 1, false>(values, shift), ...);
  }
}
TEST(PreludeCuda, PacksCodesOfAnyWidth) { expect_codes(std::make_integer_sequence<int, 32>()); }

}  // namespace
}  // namespace tithe::lang
