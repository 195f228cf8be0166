// SPDX-License-Identifier: Apache-2.0
#pragma once
// thc: a random rotation makes values nearly normal; they are rounded stochastically to a few levels that all ranks
// share; the levels are added as integers and never decoded during the exchange (Li et al., "THC", NSDI 2024).
//
//   range    per block of 1024 values, the largest over all ranks (max phase): `reach` standard deviations of the
//            rotated values, that is reach |x| / sqrt(width). Below 2^-126 it becomes 0, and the block is sent as zeros
//   rotate   codec/shared/rotation/rotation.h, with signs that are equal on all ranks; zeros extend a short last block
//            to a power of two
//   round    to one of top + 1 even steps from -range to range, up or down at random so that the mean is the value;
//            values beyond the range become its end
//   add      int fields (int_sum/int_fields.h, sum phase), as wide as the ranks counted in the max phase need
//   decode   H maps integers to integers, exactly, so each value is rounded once
//
// mode=even     top = 2^bits - 1; reach = 1 + bits / 3, near the least error for normal values
// mode=literal  as published: 16 of 31 even steps, closer together where values are more likely; top = 30;
//               reach = 2.1539, so one value in 32 is outside. The published form sends 4 bits to a server, which looks
//               up the step, and 8 bits back. Here every hop sends sums, so even steps cost no more and lose less.
// The published form has one norm for all blocks and clips a block that holds more than its share; here each block has
// its own.
//
// Layout   phase 0 (max): u16 ranks counted | u16 top | u64 key of the signs | f32 range per block
//          phase 1 (sum): int fields; value i of a block of width w is field i of the block
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "codec/shared/int_sum/int_fields.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec thc_codec;
}

namespace tithe::thc {

enum Param : std::size_t { kBits, kMode, kWorkers };

inline constexpr std::size_t kBlock = 1024;
inline constexpr float kMinRange = 0x1p-126F;
inline constexpr float kMaxFloat = std::numeric_limits<float>::max();
// Up to this range no value of one rank's block overflows: all are below 32 ranges.
inline constexpr float kSafeRange = kMaxFloat / 64;
inline constexpr std::array<std::uint8_t, 16> kTable = {0,  3,  5,  7,  9,  11, 13, 14,
                                                        16, 17, 19, 21, 23, 25, 27, 30};

// For each integer below 30: the step of kTable at or below it, and the next step.
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

// The settings, as numbers.
struct Quantizer {
  unsigned top;   // the largest step
  unsigned most;  // the most workers
  bool table;     // mode=literal
  double reach;

  explicit Quantizer(const Settings& s)
      : top((1U << (static_cast<unsigned>(s[kBits]) + 2)) - 1),
        most(static_cast<unsigned>(s[kWorkers])),
        table(s[kMode] != 0),
        reach(1 + (s[kBits] + 2) / 3) {
    if (!table) return;
    top = kTable.back();
    reach = 2.1538746940614564;  // the 1 - 1/64 quantile
  }
};

// Int fields of a block of len values, and of n values.
inline std::size_t width(std::size_t len) { return len == 0 ? 0 : std::bit_ceil(len); }
inline std::size_t fields_for(std::size_t n) { return n / kBlock * kBlock + width(n % kBlock); }

// The steps of one block, which starts at value `first` of its chunk and has a range above 0.
struct Grid {
  std::uint64_t key;  // key of the signs
  std::size_t first;
  std::size_t width;
  unsigned top;
  float inverse;  // 1 / range
  float per;      // steps per unit of H (x / range), H without its factor 1 / sqrt(width)
  float middle;   // top / 2: the step of 0
  float unit;     // the value of 1 in H (2 steps - top)

  Grid(const Quantizer& quantizer, std::uint64_t signs, std::size_t from, std::size_t len, float range)
      : key(signs),
        first(from),
        width(thc::width(len)),
        top(quantizer.top),
        middle(static_cast<float>(top) / 2) {
    const double root = std::sqrt(static_cast<double>(width));
    inverse = static_cast<float>(1.0 / range);
    per = static_cast<float>(top / (2.0 * root));
    unit = static_cast<float>(range / (top * root));
  }
};

// A random number in [0, 1) for field i.
inline float draw(std::uint64_t own, std::size_t i) {
  return static_cast<float>(draw_high(own, static_cast<std::uint32_t>(i)) >> 8) * 0x1p-24F;
}

// Rounds `at`, from 0 to top, to a step, with the draw `chance`. NaN becomes 0; finite values in range never give
// NaN.
inline std::uint32_t round(float at, float chance, bool table) {
  const auto low = static_cast<std::uint32_t>(at);
  if (!table) return low + (chance < at - static_cast<float>(low) ? 1 : 0);
  const Gap gap = kGaps[low];
  const float part = (at - static_cast<float>(gap.low)) / static_cast<float>(gap.high - gap.low);
  return chance < part ? gap.high : gap.low;
}

using Levels = std::array<std::uint32_t, kBlock>;
using Values = std::array<float, kBlock>;

// The kernels, for one block.
struct Kernels {
  // The sum of squares in the order of base/fold.h; not finite if some taken value is not.
  double (*squares)(const EncodeInput& block);
  // Rotates a block and rounds it to steps. False: some taken value is not finite.
  bool (*levels)(const Grid&, bool table, std::uint64_t own, const EncodeInput& block, Levels& out);
  // The values of the block, from the sums of the steps of `added` payloads.
  void (*values)(const Grid&, unsigned added, const Levels& sums, Values& out);
  const int_fields::Kernels& fields;
};
extern const Kernels kReference;
extern const Kernels kSimd;  // thc_simd.cc; the reference does a short last block

}  // namespace tithe::thc
