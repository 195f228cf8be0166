// SPDX-License-Identifier: Apache-2.0
// Pressing and spreading lanes, of every target that this machine has, for every mask, beside the obvious loops.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "tithe/seam/machine.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/common/compress_test.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/compress_simd_inl.h"

#ifndef TITHE_CODEC_COMPRESS_TEST_
#define TITHE_CODEC_COMPRESS_TEST_
namespace tithe::simd {

using Lanes = std::array<std::uint32_t, 16>;
constexpr std::uint32_t kAny = 0xdeadbeef;

// The output of the functions for a mask; lanes: of the target's vectors.
struct Written {
  std::size_t lanes;
  std::uint32_t set;
  std::size_t count, float_count;
  Lanes words, floats, spread;
};

}  // namespace tithe::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::simd::HWY_NAMESPACE {
namespace {

Written write(std::uint32_t mask, const Lanes& from) {
  using F = hn::CappedTag<float, 16>;
  using W = hn::RebindToUnsigned<F>;
  const W w;
  const F f;
  Written to{};
  to.lanes = hn::Lanes(w);
  to.words.fill(kAny);
  to.floats.fill(kAny);
  to.spread.fill(kAny);
  const auto own = hn::Shl(hn::Set(w, 1U), hn::Iota(w, 0U));
  const auto named = hn::TestBit(hn::Set(w, mask), own);
  const auto v = hn::LoadU(w, from.data());
  to.set = set_of(w, named);
  to.count = compress_store(w, v, named, to.words.data());
  Lanes floats;
  hn::StoreU(v, w, floats.data());
  to.float_count = compress_store(f, hn::BitCast(f, v), hn::RebindMask(f, named),
                                  reinterpret_cast<float*>(to.floats.data()));
  hn::StoreU(spread(w, v, mask), w, to.spread.data());
  return to;
}

}  // namespace
}  // namespace tithe::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::simd {
namespace {

HWY_EXPORT(write);

class Compress : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(use_target(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(use_target(before_).ok()); }

 private:
  const std::string before_ = target();
};

// Bits that as floats are a signalling NaN, an infinity, a denormal, -0, or ordinary: none may change on its way.
constexpr Lanes kLanes = {0x7f800001, 0xff800000, 0x00000001, 0x80000000, 0x3f800000, 0xbf800000, 7,  8,
                          0x12345678, 0x9abcdef0, 11,         12,         13,         14,         15, 16};

TEST_P(Compress, EqualsALoopForEveryMask) {
  const std::size_t lanes = HWY_DYNAMIC_DISPATCH(write)(0, kLanes).lanes;
  ASSERT_GE(kLanes.size(), lanes);
  for (std::uint32_t mask = 0; mask < 1U << lanes; ++mask) {
    const Written got = HWY_DYNAMIC_DISPATCH(write)(mask, kLanes);
    Lanes pressed{}, spread{};
    std::size_t count = 0;
    for (std::size_t k = 0; k < lanes; ++k) {
      if (mask >> k & 1U) spread[k] = kLanes[count];
      if (mask >> k & 1U) pressed[count++] = kLanes[k];
    }
    ASSERT_EQ(got.set, mask);
    ASSERT_EQ(got.count, count) << "mask " << mask;
    ASSERT_EQ(got.float_count, count) << "mask " << mask;
    for (std::size_t k = 0; k < count; ++k) {
      ASSERT_EQ(got.words[k], pressed[k]) << "mask " << mask << ", lane " << k;
      ASSERT_EQ(got.floats[k], pressed[k]) << "mask " << mask << ", lane " << k;
    }
    for (std::size_t k = 0; k < lanes; ++k)
      ASSERT_EQ(got.spread[k], spread[k]) << "mask " << mask << ", lane " << k;
    for (std::size_t k = lanes; k < kLanes.size(); ++k) {  // no more than a vector is written
      ASSERT_EQ(got.words[k], kAny);
      ASSERT_EQ(got.floats[k], kAny);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Compress, testing::ValuesIn(targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tithe::simd
#endif
