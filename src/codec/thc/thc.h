// SPDX-License-Identifier: Apache-2.0
#pragma once
// thc: values are turned into near-normal ones by a random rotation, rounded at random to a few levels that all ranks
// share, and added up as whole numbers, never decoded on the way (Li et al., "THC", NSDI 2024).
//
//   range    per block of 1024 values, over all ranks the largest: reach standard deviations of the rotated values,
//            that is reach |x| / sqrt(width). 0 below 2^-126: of such a block nothing is sent (max phase)
//   rotate   signs that all ranks draw alike, then the Walsh-Hadamard transform H; a short last block is filled up with
//            zeros to a power of two
//   round    to one of top + 1 even steps from -range to range, up or down at random so that the mean is right; what
//            lies outside is held at the end
//   add      codec/int_sum/int_fields.h (sum phase); lanes are as wide as the ranks that the max phase counted need
//   back     H of whole numbers is one of whole numbers, so it is exact, and there is one rounding per value
//
// mode=even     top = 2^bits - 1; reach = 1 + bits / 3, near the least error for normal values
// mode=literal  as published: 16 of 31 even steps, closer where values are more likely; top = 30, reach = 2.1539 (one
//               in 32 lies outside). There 4 bits go up to a server that looks the step up and 8 bits come down. Here
//               sums travel everywhere, so even steps cost no more and lose less.
// As published all blocks have one norm, and one that holds more than its share is cut off; here each has its own.
//
// Layout   phase 0 (max): u16 ranks counted | u16 top | u64 key of the signs | f32 range per block
//          phase 1 (sum): lanes; value i of a block of width w is lane i of the block
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "codec/int_sum/int_fields.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec thc_codec;
}

namespace tithe::thc {

enum Param : std::size_t { kBits, kMode, kWorkers };

inline constexpr std::size_t kBlock = 1024;
inline constexpr float kLeastRange = 0x1p-126F;
inline constexpr float kMost = std::numeric_limits<float>::max();
inline constexpr float kSafeRange =
    kMost / 64;  // no value of a block of one rank overflows: all are below 32 ranges
inline constexpr std::array<std::uint8_t, 16> kTable = {0,  3,  5,  7,  9,  11, 13, 14,
                                                        16, 17, 19, 21, 23, 25, 27, 30};

// What lies between the table's steps: for each whole number below 30 the step at or below it, and the next.
struct Gap {
  std::uint8_t low;
  std::uint8_t high;
};
constexpr std::array<Gap, 31> gaps() {
  std::array<Gap, 31> all{};
  for (std::size_t k = 0; k + 1 < kTable.size(); ++k)
    for (std::size_t at = kTable[k]; at <= kTable[k + 1]; ++at) all[at] = {kTable[k], kTable[k + 1]};
  all[30] = {30, 31};
  return all;
}
inline constexpr std::array<Gap, 31> kGaps = gaps();

struct Shape {
  unsigned top;
  unsigned most;  // workers
  bool table;
  double reach;

  explicit Shape(const Settings& s)
      : top((1U << (static_cast<unsigned>(s[kBits]) + 2)) - 1),
        most(static_cast<unsigned>(s[kWorkers])),
        table(s[kMode] != 0),
        reach(1 + (s[kBits] + 2) / 3) {
    if (!table) return;
    top = kTable.back();
    reach = 2.1538746940614564;  // the 1 - 1/64 quantile
  }
};

// Lanes of the block that holds len values.
inline std::size_t width(std::size_t len) { return len == 0 ? 0 : std::bit_ceil(len); }
inline std::size_t lanes_for(std::size_t n) { return n / kBlock * kBlock + width(n % kBlock); }

// The steps of one block, which starts at value `first` of its chunk and has a range above 0.
struct Grid {
  std::uint64_t key;  // of the signs
  std::size_t first;
  std::size_t width;
  unsigned top;
  float inverse;  // of the range
  float per;      // steps for 1 of H x / range, as it comes out of the sums
  float middle;   // top / 2: the step of 0
  float unit;     // what half a step is worth in one value of H (2 steps - top)

  Grid(const Shape& shape, std::uint64_t signs, std::size_t from, std::size_t len, float range)
      : key(signs), first(from), width(thc::width(len)), top(shape.top), middle(static_cast<float>(top) / 2) {
    const double root = std::sqrt(static_cast<double>(width));
    inverse = static_cast<float>(1.0 / range);
    per = static_cast<float>(top / (2.0 * root));
    unit = static_cast<float>(range / (top * root));
  }
  // 32 signs at a time: bit j is that of value 32 k + j, 1 for minus.
  std::uint32_t signs(std::size_t k) const { return draw32(key, static_cast<std::uint32_t>(first / 32 + k)); }
};

// A number in [0, 1) for lane i.
inline float draw(std::uint64_t own, std::size_t i) {
  return static_cast<float>(draw_high(own, static_cast<std::uint32_t>(i)) >> 8) * 0x1p-24F;
}

// The step for a place between 0 and top; NaN, which no finite value makes within its range, is 0.
inline std::uint32_t round(float at, float chance, bool table) {
  const auto low = static_cast<std::uint32_t>(at);
  if (!table) return low + (chance < at - static_cast<float>(low) ? 1 : 0);
  const Gap gap = kGaps[low];
  const float part = (at - static_cast<float>(gap.low)) / static_cast<float>(gap.high - gap.low);
  return chance < part ? gap.high : gap.low;
}

using Levels = std::array<std::uint32_t, kBlock>;
using Values = std::array<float, kBlock>;

// The body of a block, as the reference does it and with vectors.
struct Kernels {
  // The sum of squares in the shape of base/fold.h; a value that is not finite makes it so, too.
  double (*squares)(const Carry& block);
  // The steps of a block's rotated values. False: some taken value was not finite.
  bool (*levels)(const Grid&, bool table, std::uint64_t own, const Carry& block, Levels& out);
  // From sums of steps of `added` payloads to the values of the block.
  void (*values)(const Grid&, unsigned added, const Levels& sums, Values& out);
  const int_fields::Kernels& fields;
};
extern const Kernels kReference;
extern const Kernels kSimd;  // thc_simd.cc; blocks that are not whole go to the reference

}  // namespace tithe::thc
