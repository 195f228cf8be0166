// SPDX-License-Identifier: Apache-2.0
#include "codec/dragonn/dragonn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dragonn/dragonn_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tithe::dragonn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void Hash(const std::uint32_t* HWY_RESTRICT index, std::size_t n, std::uint32_t key, std::uint32_t slots,
          std::uint32_t* HWY_RESTRICT slot) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // which has no wider lanes
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto keys = hn::Set(d, key);
  const auto times = hn::Set(d, slots);
  const auto c1 = hn::Set(d, 0x85ebca6bU);
  const auto c2 = hn::Set(d, 0xc2b2ae35U);
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    auto h = hn::Xor(hn::LoadU(d, index + i), keys);
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), c1);
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<13>(h)), c2);
    h = hn::Xor(h, hn::ShiftRight<16>(h));
    // The upper halves of the 64-bit products, of even and of odd lanes.
    const auto even = hn::ShiftRight<32>(hn::MulEven(h, times));
    const auto odd_h = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, h)));
    const auto odd = hn::ShiftLeft<32>(hn::ShiftRight<32>(hn::MulEven(odd_h, times)));
    hn::StoreU(hn::BitCast(d, hn::Or(even, odd)), d, slot + i);
  }
#endif
  for (; i < n; ++i) slot[i] = slot_of(index[i], key, slots);
}

}  // namespace tithe::dragonn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::dragonn {

HWY_EXPORT(Hash);

void hash(const std::uint32_t* index, std::size_t n, std::uint32_t key, std::uint32_t slots,
          std::uint32_t* slot) {
  HWY_DYNAMIC_DISPATCH(Hash)(index, n, key, slots, slot);
}

}  // namespace tithe::dragonn
#endif
