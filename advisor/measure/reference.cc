// SPDX-License-Identifier: Apache-2.0
// Reference kernels, compiled for every Highway target and dispatched at run time.
#include "advisor/measure/reference.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "advisor/measure/reference.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::bench::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::ScalableTag<float> kF;
const hn::ScalableTag<std::uint32_t> kW;
using Sum = hn::Vec<decltype(kW)>;

void add_apart(const float* r, const float* g, float* out, std::size_t n) {
  const std::size_t lanes = hn::Lanes(kF);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = hn::Add(hn::LoadU(kF, r + i), hn::LoadU(kF, g + i));
    const auto b = hn::Add(hn::LoadU(kF, r + i + lanes), hn::LoadU(kF, g + i + lanes));
    const auto c = hn::Add(hn::LoadU(kF, r + i + 2 * lanes), hn::LoadU(kF, g + i + 2 * lanes));
    const auto d = hn::Add(hn::LoadU(kF, r + i + 3 * lanes), hn::LoadU(kF, g + i + 3 * lanes));
    hn::StoreU(a, kF, out + i);
    hn::StoreU(b, kF, out + i + lanes);
    hn::StoreU(c, kF, out + i + 2 * lanes);
    hn::StoreU(d, kF, out + i + 3 * lanes);
  }
  for (; i < n; ++i) out[i] = r[i] + g[i];
}

// Reads whole vectors only; the rest is smaller than one step.
Sum read(const std::uint8_t* p, std::size_t bytes, Sum sum) {
  const std::size_t step = 4 * hn::Lanes(kW);
  for (std::size_t i = 0; i + step <= bytes; i += step)
    sum = hn::Xor(sum, hn::LoadU(kW, reinterpret_cast<const std::uint32_t*>(p + i)));
  return sum;
}

std::uint32_t fold(Sum sum) { return hn::GetLane(hn::SumOfLanes(kW, sum)); }

// copy() and scale() work in chunks: the same share of each stream at a time, as a kernel does.
constexpr std::size_t kChunk = 4096;  // values

void copy(const float* from, std::size_t n, std::uint8_t* to, std::size_t bytes) {
  const std::size_t step = 4 * hn::Lanes(kW);
  auto sum = hn::Zero(kW);
  std::size_t written = 0;
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t len = std::min(kChunk, n - i);
    const auto* source = reinterpret_cast<const std::uint8_t*>(from + i);
    const std::size_t target = (i + len) * bytes / n;
    const std::size_t share = std::min(target - written, 4 * len);
    // The first bytes of the chunk are copied; the others are only read.
    std::size_t b = 0;
    for (; b + step <= share; b += step)
      hn::StoreU(hn::LoadU(kW, reinterpret_cast<const std::uint32_t*>(source + b)), kW,
                 reinterpret_cast<std::uint32_t*>(to + written + b));
    sum = read(source + b, 4 * len - b, sum);
    written = target;
  }
  if (bytes != 0 && fold(sum) == 1) to[0] ^= 1U;
}

std::uint32_t scale(float* v, std::size_t n, float s, std::span<const ByteView> payloads) {
  const auto by = hn::Set(kF, s);
  const std::size_t lanes = hn::Lanes(kF);
  auto sum = hn::Zero(kW);
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t end = std::min(n, i + kChunk);
    std::size_t k = i;
    for (; k + 2 * lanes <= end; k += 2 * lanes) {
      const auto a = hn::Mul(hn::LoadU(kF, v + k), by);
      const auto b = hn::Mul(hn::LoadU(kF, v + k + lanes), by);
      hn::StoreU(a, kF, v + k);
      hn::StoreU(b, kF, v + k + lanes);
    }
    for (; k < end; ++k) v[k] *= s;
    for (const ByteView p : payloads) {
      const std::size_t from = i * p.size() / n;
      sum = read(p.data() + from, end * p.size() / n - from, sum);
    }
  }
  return fold(sum);
}

}  // namespace
}  // namespace tithe::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::bench {

HWY_EXPORT(add_apart);
HWY_EXPORT(copy);
HWY_EXPORT(scale);

void add(float* r, const float* g, std::size_t n) { add_apart(r, g, r, n); }
void add_apart(const float* r, const float* g, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add_apart)(r, g, out, n);
}
void copy(const float* from, std::size_t n, std::uint8_t* to, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy)(from, n, to, bytes);
}
std::uint32_t scale(float* v, std::size_t n, float s, std::span<const ByteView> payloads) {
  return HWY_DYNAMIC_DISPATCH(scale)(v, n, s, payloads);
}

}  // namespace tithe::bench
#endif
