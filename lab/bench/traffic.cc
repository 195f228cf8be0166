// SPDX-License-Identifier: Apache-2.0
// Compiled for every Highway target and dispatched at run time.
#include "traffic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traffic.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::bench::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::ScalableTag<float> kF;
const hn::ScalableTag<std::uint32_t> kW;

void move_on(float* r, const float* g, float* out, std::size_t n) {
  const std::size_t lanes = hn::Lanes(kF);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(kF, g + i);
    const auto b = hn::LoadU(kF, g + i + lanes);
    hn::StoreU(hn::Add(hn::LoadU(kF, r + i), a), kF, out + i);
    hn::StoreU(hn::Add(hn::LoadU(kF, r + i + lanes), b), kF, out + i + lanes);
    hn::StoreU(a, kF, r + i);
    hn::StoreU(b, kF, r + i + lanes);
  }
  for (; i < n; ++i) {
    out[i] = r[i] + g[i];
    r[i] = g[i];
  }
}

// Reads whole vectors only; the rest is smaller than one step.
std::uint32_t read_values(const float* from, std::size_t n) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(from);
  const std::size_t step = 4 * hn::Lanes(kW);
  auto sum = hn::Zero(kW);
  for (std::size_t i = 0; i + step <= 4 * n; i += step)
    sum = hn::Xor(sum, hn::LoadU(kW, reinterpret_cast<const std::uint32_t*>(p + i)));
  return hn::GetLane(hn::SumOfLanes(kW, sum));
}

void fill_past_caches(float* out, std::size_t n, float value) {
  const auto v = hn::Set(kF, value);
  const std::size_t lanes = hn::Lanes(kF);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::Stream(v, kF, out + i);
  for (; i < n; ++i) out[i] = value;
}

}  // namespace
}  // namespace tithe::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::bench {

HWY_EXPORT(move_on);
HWY_EXPORT(read_values);
HWY_EXPORT(fill_past_caches);

void move_on(float* r, const float* g, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(move_on)(r, g, out, n);
}
std::uint32_t read_values(const float* from, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(read_values)(from, n);
}
void fill_past_caches(float* out, std::size_t n, float value) {
  HWY_DYNAMIC_DISPATCH(fill_past_caches)(out, n, value);
}

}  // namespace tithe::bench
#endif
