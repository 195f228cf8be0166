// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/floats/fp8_kernels.h"

#define HWY_WANT_AVX3_DL  // a byte for any byte
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/floats/fp8_add_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/floats/fp8_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp8::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // whole() has no values for it
void add(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
         const std::uint8_t* in, float* residual_out) {
  kReference.add(format, n, scales, acc, in, residual_out);
}
#else
// Adds a piece of whole blocks in several passes, so that no pass waits for the latency of the one before.
struct Piece {
  static constexpr std::size_t kMaxCodes = 512;
  HWY_ALIGN std::int16_t sum[kMaxCodes];  // as binary16
  // With e4m3 the sum. With e5m2 the sum need not be exact in float: the larger operand, and the smaller one in `more`.
  HWY_ALIGN float exact[kMaxCodes];
  HWY_ALIGN float more[kMaxCodes];
};

// Rounding to binary16 first does not change the code: sums that binary16 cannot hold are too near a code.
// False: acc has e4m3 codes that are NaN (NaN and infinity of e5m2 are the same in binary16).
// kExact: keeps exact sums for store_residual(). ahead: the residual_out of the next piece, to prefetch.
template <typename Float, bool kExact>
HWY_INLINE bool add_halves(std::size_t n, const std::uint8_t* acc, const std::uint8_t* in, const float* ahead,
                           Piece& HWY_RESTRICT piece) {
  const hn::Rebind<hwy::float16_t, Floats> d;
  VN most = hn::Zero(Narrow());
  for (std::size_t i = 0; i < n; i += lanes()) {
    const VN half = widened<Float>(acc + i);
    if (Float::kNumber == 0) most = hn::Max(most, hn::And(half, narrow(0x7fff)));
    const VF a = promoted(half), b = promoted(widened<Float>(in + i));
    const VF sum = hn::Add(a, b);
    hn::Store(hn::BitCast(Narrow(), hn::DemoteTo(d, sum)), Narrow(), piece.sum + i);
    if (!kExact) continue;
    hwy::Prefetch(ahead + i);
    if (Float::kNumber == 0) {
      hn::Store(sum, Floats(), piece.exact + i);
    } else {
      const auto swap = hn::RebindMask(Floats(), hn::Lt(magnitude(a), magnitude(b)));
      hn::Store(hn::IfThenElse(swap, b, a), Floats(), piece.exact + i);
      hn::Store(hn::IfThenElse(swap, a, b), Floats(), piece.more + i);
    }
  }
  return hn::AllTrue(Narrow(), hn::Lt(most, narrow((Float::kLargest + 1) << kWiden<Float>)));
}

// A code consists of the bits above those that rounding removes. kBack: replaces the sums by the values of their
// codes.
template <typename Float, bool kBack>
HWY_INLINE void round_halves(std::size_t n, Piece& HWY_RESTRICT piece, std::uint8_t* HWY_RESTRICT codes) {
  using D = hn::Repartition<std::int16_t, Words>;  // of two vectors
  const hn::Rebind<std::uint8_t, D> octets;
  const auto set = [](int v) HWY_ATTR { return hn::Set(D(), static_cast<std::int16_t>(v)); };
  constexpr int kBits = kWiden<Float>;
  constexpr int kBelow = (1 << kBits) - 1;
  for (std::size_t i = 0; i < n; i += hn::Lanes(D())) {
    const auto half = hn::Load(D(), piece.sum + i);
    const auto odd_code = hn::And(hn::ShiftRight<kBits>(half), set(1));
    const auto near = hn::Add(hn::Add(hn::And(half, set(0x7fff)), set(kBelow >> 1)), odd_code);
    const auto held = hn::Min(near, set(static_cast<int>(Float::kLargest << kBits) | kBelow));
    const auto code = hn::OrAnd(hn::ShiftRight<kBits>(held), hn::ShiftRight<8>(half), set(0x80));
    hn::StoreU(hn::DemoteTo(octets, code), octets, codes + i);
    if (kBack) hn::Store(hn::OrAnd(hn::And(held, set(~kBelow)), half, set(~0x7fff)), D(), piece.sum + i);
  }
}

// If the exact sum of two e5m2 codes is not a float, the larger code is sent. residual_out is the same in fp64 and in
// fp32: the float nearest to the exact result.
template <typename Float>
HWY_INLINE void store_residual(std::size_t n, const std::uint8_t* scales, const Piece& piece,
                               float* HWY_RESTRICT residual_out) {
  for (std::size_t i = 0; i < n; i += lanes()) {
    VF off = hn::Sub(hn::Load(Floats(), piece.exact + i), promoted(hn::Load(Narrow(), piece.sum + i)));
    if (Float::kNumber != 0) off = hn::Add(off, hn::Load(Floats(), piece.more + i));
    const VF by = hn::Set(Floats(), scale_value(scales[i / kBlock] + kDown<Float>));
    hn::StoreU(hn::MulAdd(off, by, load(residual_out + i)), Floats(), residual_out + i);
  }
}

// False: nothing was written.
template <typename Float, bool kResidualOut>
HWY_INLINE bool add_piece(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
                          const std::uint8_t* in, float* residual_out, const float* ahead) {
  Piece piece;
  if (!add_halves<Float, kResidualOut>(n, acc, in, ahead, piece)) return false;
  round_halves<Float, kResidualOut>(n, piece, acc);
  if (kResidualOut) store_residual<Float>(n, scales, piece, residual_out);
  return true;
}

#if HWY_TARGET == HWY_AVX3_DL
// Sums without residual_out: 64 codes at a time, by byte tables. In units of the last bit of the larger code, whose
// binade is e, the larger code is H and the smaller one, d binades below, is L 2^-d. S = 8 H +- 8 L 2^-d, with an odd
// last bit for any remainder, rounds to the same code as the exact sum. From 7 binades on the value of L does not
// matter.
template <typename Float>
struct alignas(64) Tables {
  using Bytes128 = std::uint8_t[128];
  static constexpr unsigned kMantissa = 23 - Float::kShift;
  Bytes128 binade{};         // of a code: e
  Bytes128 parts{};          // of a code: 8 H
  Bytes128 parts_less{};     // of a code: 8 L - e
  Bytes128 other{};          // of 8 L + d: 8 L 2^-d
  std::uint8_t code[256]{};  // of S: the sum's code above that of e, if it is normal
  Bytes128 row{};            // of a code: where its part of `small` starts
  Bytes128 small{};          // of row + S / 4: the sum's code if it is subnormal, and so exact; or 0

  constexpr Tables() {
    constexpr unsigned kOne = 1U << kMantissa;
    for (unsigned c = 0; c < 128; ++c) {
      const unsigned e = std::max(c >> kMantissa, 1U) - 1, eighths = 8 * (c - e * kOne);
      put(binade[c], e);
      put(parts[c], eighths);
      put(parts_less[c], eighths - e);
      put(row[c], std::min(e, 7U) * 16);
      const unsigned l = c & 0x78U, d = c & 7U;
      put(other[c], l >> d | ((l & ((1U << d) - 1)) != 0 ? 1U : 0U));
      const unsigned subnormal = ((c & 15U) * 4 << (c >> 4)) / 8;
      put(small[c], (c & 15U) != 15 && subnormal < kOne ? subnormal : 0);
    }
    put(code[0], 0x80);  // less than any
    for (unsigned s = 1; s < 256; ++s) {
      unsigned many = 16 * s, steps = 128;  // of 1 / 128; S itself is in eighths
      unsigned below = 0;
      for (; many < steps * kOne; steps /= 2) below += kOne;
      for (; many >= 2 * steps * kOne; steps *= 2) below -= kOne;
      put(code[s], (many + steps / 2 - 1 + (many / steps & 1U)) / steps - below);
    }
  }
  static constexpr void put(std::uint8_t& to, unsigned value) { to = static_cast<std::uint8_t>(value); }
};
template <typename Float>
constexpr Tables<Float> kTables;

class Table {
 public:
  HWY_INLINE explicit Table(const std::uint8_t* of)
      : low_(_mm512_load_si512(of)), high_(_mm512_load_si512(of + 64)) {}
  HWY_INLINE __m512i operator()(__m512i at) const { return _mm512_permutex2var_epi8(low_, at, high_); }

 private:
  __m512i low_, high_;
};

HWY_INLINE __m512i octets(unsigned v) { return _mm512_set1_epi8(static_cast<char>(v)); }

// Returns how many codes it added: it stops at a code of acc that is NaN or infinity.
template <typename Float>
std::size_t add_bytes(std::size_t n, std::uint8_t* HWY_RESTRICT acc, const std::uint8_t* HWY_RESTRICT in) {
  constexpr const Tables<Float>& kT = kTables<Float>;
  const Table binade(kT.binade), parts(kT.parts), parts_less(kT.parts_less), other(kT.other);
  const Table code(kT.code), code_of_more(kT.code + 128), row(kT.row), small(kT.small);
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i a = _mm512_loadu_si512(acc + i), b = _mm512_loadu_si512(in + i);
    const __m512i mag_a = _mm512_and_si512(a, octets(0x7f)), mag_b = _mm512_and_si512(b, octets(0x7f));
    if (_mm512_cmpgt_epu8_mask(mag_a, octets(Float::kLargest)) != 0) break;
    const __m512i large = _mm512_max_epu8(mag_a, mag_b);
    const __m512i near = _mm512_subs_epu8(large, octets(7U << kT.kMantissa));
    const __m512i e = binade(large);
    const __m512i part =
        other(_mm512_add_epi8(parts_less(_mm512_max_epu8(_mm512_min_epu8(mag_a, mag_b), near)), e));
    const __mmask64 differ = _mm512_movepi8_mask(_mm512_xor_si512(a, b));
    const __m512i s = _mm512_add_epi8(parts(large), _mm512_mask_sub_epi8(part, differ, octets(0), part));
    __m512i above = code(s);
    if (kT.kMantissa == 3) above = _mm512_mask_mov_epi8(above, _mm512_movepi8_mask(s), code_of_more(s));
    const __m512i normal = _mm512_adds_epi8(_mm512_slli_epi16(e, kT.kMantissa), above);
    const __m512i quarter = _mm512_srli_epi16(_mm512_min_epu8(s, octets(63)), 2);
    const __m512i subnormal = small(_mm512_or_si512(row(large), _mm512_and_si512(quarter, octets(15))));
    const __m512i mag = _mm512_min_epi8(_mm512_max_epi8(normal, subnormal), octets(Float::kLargest));
    const __m512i sign = _mm512_mask_mov_epi8(a, _mm512_cmplt_epu8_mask(mag_a, mag_b), b);
    const __m512i sum = _mm512_or_si512(mag, _mm512_and_si512(sign, octets(0x80)));
    const __mmask64 nothing = _mm512_mask_testn_epi8_mask(differ, s, s);  // +0
    _mm512_storeu_si512(acc + i, _mm512_mask_mov_epi8(sum, nothing, octets(0)));
  }
  return i;
}
#endif

template <typename Float, bool kResidualOut>
void add_as(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc, const std::uint8_t* in,
            float* residual_out) {
  const std::size_t whole = n / kBlock * kBlock;
  std::size_t i = 0, len = 0;
#if HWY_TARGET == HWY_AVX3_DL
  if (!kResidualOut) i = add_bytes<Float>(n, acc, in);
#endif
  for (; i < n; i += len) {
    len = i < whole ? std::min(Piece::kMaxCodes, whole - i) : n - i;
    float* const rest = kResidualOut ? residual_out + i : nullptr;
    const float* ahead = kResidualOut && i + 2 * Piece::kMaxCodes <= n ? rest + Piece::kMaxCodes : rest;
    if (i == whole || !add_piece<Float, kResidualOut>(len, scales + i / kBlock, acc + i, in + i, rest, ahead))
      kReference.add(Float::kNumber, len, scales + i / kBlock, acc + i, in + i, rest);
  }
}

void add(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
         const std::uint8_t* in, float* residual_out) {
  in_format(format, [&]<typename Float>(Float) HWY_ATTR {
    residual_out ? add_as<Float, true>(n, scales, acc, in, residual_out)
                 : add_as<Float, false>(n, scales, acc, in, residual_out);
  });
}
#endif

}  // namespace
}  // namespace tithe::fp8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fp8 {

HWY_EXPORT(add);

void add_simd(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* residual_out) {
  HWY_DYNAMIC_DISPATCH(add)(format, n, scales, acc, in, residual_out);
}

}  // namespace tithe::fp8
#endif
