// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs and kernels (prelude.h): operators on single numbers, with the semantics
// of evaluate.cc. Needs INL, bits_ and float_.

namespace {

// ---- Integers and bools
INL int32_t div_(int32_t a, int32_t b) { return b == 0 ? 0 : int32_t(int64_t(a) / int64_t(b)); }
INL uint32_t div_(uint32_t a, uint32_t b) { return b == 0 ? 0 : a / b; }
INL int32_t mod_(int32_t a, int32_t b) { return b == 0 ? 0 : int32_t(int64_t(a) % int64_t(b)); }
INL uint32_t mod_(uint32_t a, uint32_t b) { return b == 0 ? 0 : a % b; }
INL bool and_(bool a, bool b) { return a && b; }
INL bool or_(bool a, bool b) { return a || b; }
INL bool xor_(bool a, bool b) { return a != b; }
INL bool lnot(bool a) { return !a; }
INL uint32_t as_u(int32_t a) { return uint32_t(a); }
INL uint32_t as_u(uint32_t a) { return a; }
INL uint32_t as_u(bool a) { return a ? 1U : 0U; }
INL int32_t as_i(uint32_t a) { return int32_t(a); }
INL uint32_t shl(uint32_t a, uint32_t b) { return b < 32 ? a << b : 0; }
INL int32_t shl(int32_t a, uint32_t b) { return int32_t(shl(uint32_t(a), b)); }
INL uint32_t shr(uint32_t a, uint32_t b) { return b < 32 ? a >> b : 0; }
INL int32_t shr(int32_t a, uint32_t b) { return b < 32 ? a >> b : a < 0 ? -1 : 0; }

// ---- The bits of floats
INL bool signbit_(float a) { return bits_(a) >> 31 != 0; }
INL float copysign_(float a, float b) { return float_((bits_(a) & 0x7fffffffU) | (bits_(b) & 0x80000000U)); }
// Binary16 (half_bits.h).
INL uint32_t half_bits(float a) {
  uint32_t v = bits_(a), size = v & 0x7fffffffU, sign = v >> 16 & 0x8000U;
  if (size > 0x7f800000U) return sign | 0x7e00U | (size >> 13 & 0x3ffU);
  if (size < 0x38800000U) return sign | (bits_(float_(size) + 0.5f) - 0x3f000000U);
  uint32_t rounded = (size - 0x38000000U + 0xfffU + (size >> 13 & 1U)) >> 13;
  return sign | (rounded < 0x7c00U ? rounded : 0x7c00U);
}
INL float from_half_bits(uint32_t h) {
  uint32_t size = h & 0x7fffU, sign = (h & 0x8000U) << 16;
  if (size > 0x7c00U) return float_(sign | 0x7fc00000U | size << 13);
  if (size == 0x7c00U) return float_(sign | 0x7f800000U);
  if (size >= 0x400U) return float_(sign | ((size << 13) + 0x38000000U));
  return float_(sign | bits_(float(size) * 0x1p-24f));
}

// ---- Conversions. Float to integer rounds towards zero and is limited to the given range; NaN becomes the lower end
INL float to_f32(double a) { return float(a); }
INL float to_f32(int32_t a) { return float(a); }
INL float to_f32(uint32_t a) { return float(a); }
INL double to_f64(float a) { return a; }
INL double to_f64(int32_t a) { return a; }
INL double to_f64(uint32_t a) { return a; }
INL double small_f64(uint32_t a) { return a; }
INL float small_f32(uint32_t a) { return float(a); }
INL double held(double d, double low, double high) { return d > low ? (d < high ? d : high) : low; }
template <class T>
INL int32_t to_i32(T v, double low, double high) {
  return int32_t(held(double(v), low, high));
}
template <class T>
INL uint32_t to_u32(T v, double low, double high) {
  return uint32_t(held(double(v), low, high));
}
template <class T>
INL int32_t small_i32(T v, double low, double high) {
  return to_i32(v, low, high);
}

}  // namespace
