// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/shared/int_sum/shared_levels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/int_sum/shared_levels_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::shared_levels::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

using VI = hn::Vec<Ints>;

block::Stats stats(const Carry& in) {
  return in.residual ? block::HWY_NAMESPACE::stats_of<true, true>(in)
                     : block::HWY_NAMESPACE::stats_of<false, true>(in);
}

// The reference does what whole vectors leave over.
Carry rest_of(const Carry& in, std::size_t done) { return block::part(in, done, in.n - done); }

template <bool kResidual, bool kResidualOut>
bool send_as(const Bucket& bucket, std::size_t at, const Carry& in, std::uint32_t* HWY_RESTRICT numbers) {
  const block::Steps& exact = bucket.rounding.steps;
  const HalfDraws draws(bucket.rounding.key, exact.fraction);
  const RoundedSteps steps(exact);
  const VF norm = hn::Set(Floats(), bucket.norm);
  const VF step = hn::Set(Floats(), bucket.step);
  const int offset = bucket.zero + 1;  // 2^(bits - 1), which steps add
  const VW mask = hn::Set(Words(), static_cast<std::uint32_t>(2 * offset - 1));
  const VI zero = hn::Set(Ints(), bucket.zero);
  Peak peak;
  std::size_t i = 0;
  const std::size_t vectors = exact.lift == 1.0F ? whole(in.n) : 0;
  for (; i < vectors; i += lanes()) {
    const VF v = take<kResidual>(in, i);
    const VW mag = magnitude(v);
    peak.see(mag);
    const VF held = hn::IfThenElse(hn::Lt(from_bits(mag), norm), v, hn::CopySign(norm, v));
    const VW sum = hn::And(hn::ShiftRightSame(steps.at(held, draws.at(at + i)), exact.fraction), mask);
    const VI level = hn::Sub(hn::BitCast(Ints(), sum), hn::Set(Ints(), offset));
    hn::StoreU(hn::BitCast(Words(), hn::Add(zero, level)), Words(), numbers + i);
    if (kResidualOut)
      hn::StoreU(hn::Sub(v, hn::Mul(hn::Mul(hn::ConvertTo(Floats(), level), step), norm)), Floats(),
                 in.residual_out + i);
  }
  return kReference.send(bucket, at + i, rest_of(in, i), numbers + i) && peak.finite();
}

bool send(const Bucket& bucket, std::size_t at, const Carry& in, std::uint32_t* numbers) {
  if (in.residual)
    return in.residual_out ? send_as<true, true>(bucket, at, in, numbers)
                           : send_as<true, false>(bucket, at, in, numbers);
  return in.residual_out ? send_as<false, true>(bucket, at, in, numbers)
                         : send_as<false, false>(bucket, at, in, numbers);
}

void receive(const Bucket& bucket, unsigned added, bool first, const std::uint32_t* HWY_RESTRICT numbers,
             std::size_t count, float* HWY_RESTRICT sum) {
  const VI zero = hn::Set(Ints(), bucket.zero * static_cast<int>(added));
  const VF norm = hn::Set(Floats(), bucket.norm);
  const VF step = hn::Set(Floats(), bucket.step);
  std::size_t i = 0;
  for (; i < whole(count); i += lanes()) {
    const VI level = hn::Sub(hn::BitCast(Ints(), hn::LoadU(Words(), numbers + i)), zero);
    const VF v = hn::Mul(hn::Mul(hn::ConvertTo(Floats(), level), step), norm);
    hn::StoreU(first ? v : hn::Add(load(sum + i), v), Floats(), sum + i);
  }
  kReference.receive(bucket, added, first, numbers + i, count - i, sum + i);
}

}  // namespace
}  // namespace tithe::shared_levels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::shared_levels {
TITHE_EXPORT(stats)
TITHE_EXPORT(send)
TITHE_EXPORT(receive)
const Kernels kSimd = {TITHE_KERNEL(stats), TITHE_KERNEL(send), TITHE_KERNEL(receive),
                       .fields = int_fields::kSimd};
}  // namespace tithe::shared_levels
#endif
