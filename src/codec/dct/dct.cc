// SPDX-License-Identifier: Apache-2.0
#include "codec/dct/dct.h"

#include <algorithm>
#include <numbers>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/floats/bf16_format.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe {
namespace dct {
namespace {

enum Param : std::size_t { kKeep };
constexpr ParamSpec kParams[] = {
    {"keep", 2, 1, kChunk, "coefficients that are sent of each 64 (whole number)"}};

// cos(pi m / 128), by its power series in the first quadrant.
constexpr double cosine(std::size_t m) {
  m %= 256;
  if (m > 128) m = 256 - m;
  if (m > 64) return -cosine(128 - m);
  const double t = std::numbers::pi * static_cast<double>(m) / 128;
  double term = 1, sum = 1;
  for (int j = 1; j <= 12; ++j) {
    term *= -t * t / (2 * j * (2 * j - 1));
    sum += term;
  }
  return sum;
}

constexpr std::array<Chunk, kChunk> make_basis() {
  std::array<Chunk, kChunk> basis{};
  for (std::size_t f = 0; f < kChunk; ++f)
    for (std::size_t i = 0; i < kChunk; ++i)
      basis[f][i] = static_cast<float>((f == 0 ? 1 : std::numbers::sqrt2) / 8 * cosine((2 * i + 1) * f));
  return basis;
}
constexpr std::array<Chunk, kChunk> make_transposed(const std::array<Chunk, kChunk>& basis) {
  std::array<Chunk, kChunk> turned{};
  for (std::size_t f = 0; f < kChunk; ++f)
    for (std::size_t i = 0; i < kChunk; ++i) turned[i][f] = basis[f][i];
  return turned;
}

}  // namespace

constinit const std::array<Chunk, kChunk> kBasis = make_basis();
constinit const std::array<Chunk, kChunk> kTransposed = make_transposed(make_basis());

void write(const Chunk& spectrum, std::size_t k, std::uint8_t* frequency) {
  std::array<std::uint8_t, kChunk> order{};
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(k);
  std::partial_sort(order.begin(), end, order.end(), [&](std::uint8_t a, std::uint8_t b) {
    const std::uint32_t of_a = sparse::magnitude(spectrum[a]), of_b = sparse::magnitude(spectrum[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  std::sort(order.begin(), end);
  for (std::size_t j = 0; j < k; ++j) {
    frequency[j] = order[j];
    wire::put(frequency + k + 2 * j, bf16::Format::pack(spectrum[order[j]]));
  }
}

namespace {

std::size_t keep(const Settings& s) { return static_cast<std::size_t>(s[kKeep]); }
std::size_t chunks(std::size_t n) { return (n + kChunk - 1) / kChunk; }
std::size_t bytes(std::size_t n, std::size_t k) { return 1 + chunks(n) * 3 * k; }
std::size_t bound(const Settings& s, std::size_t n) { return bytes(n, keep(s)); }

// The transform keeps the norm, and the largest coefficients hold at least their share. For values below 2^124.
double contraction(const Settings& s, std::size_t) {
  return std::min(1.0, 1 - static_cast<double>(keep(s)) / kChunk * (1 - 0x1p-16) + 0x1p-18);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  if (payload.empty() || payload[0] == 0 || payload[0] > keep(call.settings))
    return {Code::kCorrupt, "dct: another number of coefficients than was asked for"};
  const std::size_t k = payload[0];
  TITHE_TRY(codec::check_size("dct", payload.size(), bytes(n, k)));
  for (std::size_t c = 0; c < chunks(n); ++c) {
    const std::uint8_t* frequency = &payload[at(c, k)];
    for (std::size_t j = 0; j < k; ++j) {
      if (frequency[j] >= kChunk || (j > 0 && frequency[j] <= frequency[j - 1]))
        return {Code::kCorrupt, "dct: frequencies of chunk " + std::to_string(c)};
      if ((wire::get<std::uint16_t>(frequency + k + 2 * j) & 0x7fffU) > bf16::kLargest)
        return {Code::kCorrupt, "dct: a coefficient that is not finite"};
    }
  }
  return {};
}

Chunk forward(const Chunk& x) {
  Chunk spectrum{};
  for (std::size_t i = 0; i < kChunk; ++i)
    for (std::size_t f = 0; f < kChunk; ++f) spectrum[f] += x[i] * kTransposed[i][f];
  return spectrum;
}

// The values that chunk c of a payload stands for.
Chunk values_of(const std::uint8_t* payload, std::size_t c) {
  const std::size_t k = payload[0];
  const std::uint8_t* frequency = payload + at(c, k);
  Chunk values{};
  for (std::size_t j = 0; j < k; ++j) {
    const float coefficient = bf16::Format::unpack(wire::get<std::uint16_t>(frequency + k + 2 * j));
    for (std::size_t i = 0; i < kChunk; ++i) values[i] += coefficient * kBasis[frequency[j]][i];
  }
  return values;
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("dct", out.size(), bound(call.settings, in.n)));
  const std::size_t k = keep(call.settings);
  out[0] = static_cast<std::uint8_t>(k);
  bool finite = true;
  for (std::size_t c = kWith.encode(in, k, out.data(), finite); c < chunks(in.n); ++c) {
    const std::size_t first = c * kChunk;
    const std::size_t len = std::min(kChunk, in.n - first);
    Chunk x{};
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < len; ++i) {
      x[i] = in.take(first + i);
      largest = std::max(largest, sparse::magnitude(x[i]));
    }
    finite = finite && largest < sparse::kFirstNonFinite;
    if (largest >= kNearlyTooLarge)
      for (float& v : x) v *= kShrink;
    write(forward(x), k, &out[at(c, k)]);
    const Chunk sent = values_of(out.data(), c);
    for (std::size_t i = 0; i < len && in.residual_out; ++i) {
      finite = finite && is_finite(in.take(first + i) - sent[i]);
      in.leave(first + i, sent[i]);
    }
  }
  return Encoded{bound(call.settings, in.n), finite};
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  for (std::size_t c = kWith.decode(payloads, merge, out); c < chunks(out.size()); ++c) {
    const std::size_t first = c * kChunk;
    const std::size_t len = std::min(kChunk, out.size() - first);
    Chunk sum{};
    if (merge.base) std::copy_n(merge.base + first, len, sum.begin());
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const Chunk values = values_of(payloads[p].data(), c);
      for (std::size_t i = 0; i < kChunk; ++i)
        sum[i] = p == 0 && !merge.base ? values[i] : sum[i] + values[i];
    }
    for (std::size_t i = 0; i < len; ++i)
      out[first + i] = merge.divide == 1.0F ? sum[i] : sum[i] / merge.divide;
  }
  return {};
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "coefficients", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {
    .encode = [](const Carry&, std::size_t, std::uint8_t*, bool&) { return std::size_t{0}; },
    .decode = [](std::span<const ByteView>, const Merge&, std::span<float>) { return std::size_t{0}; }};

}  // namespace dct

const Codec dct_codec = {
    .name = "dct",
    .doc = "the largest coefficients of 64-value cosine transforms (after Peng et al. 2024)",
    .params = dct::kParams,
    .phases = dct::kPhases,
    .traits = {.fixed_size = true, .contraction = dct::contraction},
    .scratch = codec::no_scratch,
    .impls = dct::kImpls};

}  // namespace tithe
