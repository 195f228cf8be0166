// SPDX-License-Identifier: Apache-2.0
#include "base/fold.h"
#include "codec/randomk/randomk.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/randomk/randomk_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::randomk::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

// base/rng.h's mix32.
HWY_INLINE VW mix(VW x) {
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(Words(), 0x7feb352dU));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(Words(), 0x846ca68bU));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR has no wider lanes
// The upper halves of the 64-bit products.
HWY_INLINE VW high_product(VW a, VW b) {
  const hn::RepartitionToWide<Words> wide;
  const auto odd = [&](VW v) { return hn::BitCast(Words(), hn::ShiftRight<32>(hn::BitCast(wide, v))); };
  const auto even_high = hn::ShiftRight<32>(hn::MulEven(a, b));
  const auto odd_high = hn::ShiftLeft<32>(hn::ShiftRight<32>(hn::MulEven(odd(a), odd(b))));
  return hn::BitCast(Words(), hn::Or(even_high, odd_high));
}
#endif

// A vector of strata at a time. From one vector to the next, low and rest advance by lanes() strata.
void list(std::uint64_t key, std::size_t n, std::size_t count, std::size_t first,
          std::span<std::uint32_t> indices) {
  std::size_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const std::size_t vectors = whole(indices.size());
  if (vectors > 0) {
    const auto set = [](std::size_t v) { return hn::Set(Words(), static_cast<std::uint32_t>(v)); };
    std::uint32_t lows[kFoldLanes], rests[kFoldLanes];
    for (std::size_t k = 0; k < lanes(); ++k) {
      lows[k] = static_cast<std::uint32_t>((first + k) * n / count);
      rests[k] = static_cast<std::uint32_t>((first + k) * n % count);
    }
    VW low = hn::LoadU(Words(), lows), rest = hn::LoadU(Words(), rests);
    const VW low_step = set(lanes() * n / count), rest_step = set(lanes() * n % count);
    const VW wraps = set(
        count - lanes() * n % count);  // a rest of at least this wraps around: minus this, not plus rest_step
    const VW length = set(n / count), longer = set(count - n % count), one = set(1);
    const VW key_low = set(key & 0xffffffffU), key_high = set(key >> 32);
    for (; j < vectors; j += lanes()) {
      const VW index = hn::Iota(Words(), static_cast<std::uint32_t>(first + j));
      const VW drawn = mix(hn::Xor(key_low, mix(hn::Xor(index, key_high))));
      const VW long_by = hn::IfThenZeroElse(hn::Lt(rest, longer), one);
      const VW drawn_index = hn::Add(low, high_product(drawn, hn::Add(length, long_by)));
      hn::StoreU(drawn_index, Words(), indices.data() + j);
      const auto stays = hn::Lt(rest, wraps);
      low = hn::Add(hn::Add(low, low_step), hn::IfThenZeroElse(stays, one));
      rest = hn::IfThenElse(stays, hn::Add(rest, rest_step), hn::Sub(rest, wraps));
    }
  }
#endif
  for (IndexDraws p(key, n, count, first + j); j < indices.size(); p.next()) indices[j++] = p.index();
}

}  // namespace
}  // namespace tithe::randomk::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::randomk {

HWY_EXPORT(list);

void list_indices(std::uint64_t key, std::size_t n, std::size_t count, std::size_t first,
                  std::span<std::uint32_t> indices) {
  HWY_DYNAMIC_DISPATCH(list)(key, n, count, first, indices);
}

}  // namespace tithe::randomk
#endif
