// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): operators on single numbers, and conversions.

namespace {

// ---- The operators on single numbers
#define SCALARS(T)                               \
  INL T add(T a, T b) { return a + b; }          \
  INL T sub(T a, T b) { return a - b; }          \
  INL T mul(T a, T b) { return a * b; }          \
  INL T min_(T a, T b) { return b < a ? b : a; } \
  INL T max_(T a, T b) { return a < b ? b : a; } \
  INL T neg(T a) { return -a; }                  \
  INL bool lt(T a, T b) { return a < b; }        \
  INL bool le(T a, T b) { return a <= b; }       \
  INL bool eq(T a, T b) { return a == b; }       \
  INL bool ne(T a, T b) { return a != b; }       \
  INL T select(bool c, T a, T b) { return c ? a : b; }
SCALARS(float)
SCALARS(double)
SCALARS(int32_t)
SCALARS(uint32_t)
#define SCALAR_BITS(T)                   \
  INL T and_(T a, T b) { return a & b; } \
  INL T or_(T a, T b) { return a | b; }  \
  INL T xor_(T a, T b) { return a ^ b; }
SCALAR_BITS(int32_t)
SCALAR_BITS(uint32_t)
INL uint32_t not_(uint32_t a) { return ~a; }
INL bool eq(bool a, bool b) { return a == b; }
INL bool ne(bool a, bool b) { return a != b; }
INL bool select(bool c, bool a, bool b) { return c ? a : b; }
INL float div_(float a, float b) { return a / b; }
INL double div_(double a, double b) { return a / b; }
INL float abs_(float a) { return __builtin_fabsf(a); }
INL double abs_(double a) { return __builtin_fabs(a); }
INL int32_t abs_(int32_t a) { return a < 0 ? -a : a; }
#define SCALAR_ROUND(name, of)                 \
  INL float name(float a) { return of##f(a); } \
  INL double name(double a) { return of(a); }
SCALAR_ROUND(floor_, __builtin_floor)
SCALAR_ROUND(ceil_, __builtin_ceil)
SCALAR_ROUND(round_, __builtin_nearbyint)
SCALAR_ROUND(sqrt_, __builtin_sqrt)

// ---- Lane by lane, for operators without a vector instruction
template <class R, class T, class Of>
INL R each1(T a, Of of) {
  R r;
  for (int k = 0; k < kVectors; ++k)
    for (int j = 0; j < kLanes; ++j) r.v[k][j] = of(a.v[k][j]);
  return r;
}
template <class T, class Of>
INL T each2(T a, T b, Of of) {
  T r;
  for (int k = 0; k < kVectors; ++k)
    for (int j = 0; j < kLanes; ++j) r.v[k][j] = of(a.v[k][j], b.v[k][j]);
  return r;
}
#define LANE_BY_LANE(T, S, name)                             \
  INL T name(T a, T b) {                                     \
    return each2(a, b, [](S x, S y) { return name(x, y); }); \
  }
LANE_BY_LANE(I, int32_t, div_)
LANE_BY_LANE(U, uint32_t, div_)
LANE_BY_LANE(I, int32_t, mod_)
LANE_BY_LANE(U, uint32_t, mod_)
#if W == 16
INL U half_bits(F a) {
  return each1<U>(a, [](float v) { return half_bits(v); });
}
INL F from_half_bits(U a) {
  return each1<F>(a, [](uint32_t h) { return from_half_bits(h); });
}
#endif
template <class T>
INL T clamp_(T v, T low, T high) {
  return select(lt(v, low), low, min_(v, high));  // `low` may be above `high`
}
template <class T>
INL T hold_(T v, T low, T high) {  // clamp_ where low <= high
  return max_(min_(v, high), low);
}
INL M is_zero(F a) { return eq(a, splat(0.0f)); }
INL M is_zero(D a) { return eq(a, splat(0.0)); }
INL M is_zero(I a) { return eq(a, splat(int32_t(0))); }
INL M is_zero(U a) { return eq(a, splat(0U)); }
template <class T>
INL bool is_zero(T a) {
  return a == 0;
}
template <class T>
INL T divide_(T a, T b, T c) {
  return select(is_zero(b), c, div_(a, b));
}
// Division of many doubles by one divisor, correctly rounded (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor", 1990). 1 / by is rounded correctly. The first step makes the quotient's error less
// than one unit in the last place; then the second step rounds correctly. No intermediate result may be subnormal or
// overflow, so the caller guarantees that a is 0 or within 2^-400 .. 2^400, as `by` is.
struct By {
  double by, per;
  bool plain;
};
INL By by_of(double by) {
  double size = abs_(by);
  By b = {by, 1.0 / by, size >= 0x1p-400 && size <= 0x1p400};
  return b;
}
INL D divided(D a, const By& b) {
#if W != 16
  if (__builtin_expect(b.plain, 1)) {
    D by = splat(b.by), per = splat(b.per), first = mul(a, per);
    D near = fused(fused_less(first, by, a), per, first);
    D q = fused(fused_less(near, by, a), per, near);
    return signed_as(q, first);  // also of -0
  }
#endif
  return div_(a, splat(b.by));
}
INL D divided_or(D a, const By& b, D c) { return b.by == 0 ? c : divided(a, b); }

INL bool plain(double by) { return abs_(by) >= 0x1p-100 && abs_(by) <= 0x1p100; }
INL bool plain_or_zero(double by) { return by == 0 || plain(by); }
INL float per_of(double by) { return by == 0 ? 0.0f : float(1.0 / by); }

// ---- Conversions
INL F to_f32(I a) { return from_i32(a); }
INL F to_f32(U a) {
  return each1<F>(a, [](uint32_t v) { return float(v); });
}
INL F small_f32(U a) { return from_i32(as_i(a)); }  // below 2^31
INL D small_f64(U a) { return to_f64(as_i(a)); }
INL D to_f64(U a) {
  D r;
  for (int j = 0; j < 16; ++j) r.v[j / (kLanes / 2)][j % (kLanes / 2)] = a.v[j / kLanes][j % kLanes];
  return r;
}
INL F held(F v, float low, float high) { return min_(splat(high), max_(splat(low), v)); }
INL D held(D v, double low, double high) { return min_(splat(high), max_(splat(low), v)); }
// "small": both ends are exact in f32 and within i32.
INL I small_i32(F v, double low, double high) { return towards_zero(held(v, float(low), float(high))); }
INL I small_i32(D v, double low, double high) { return towards_zero(held(v, low, high)); }
#define TO_WHOLE(R, T, S, name)                                  \
  INL R name(T v, double low, double high) {                     \
    return each1<R>(v, [=](S x) { return name(x, low, high); }); \
  }
TO_WHOLE(I, F, float, to_i32)
TO_WHOLE(U, F, float, to_u32)
TO_WHOLE(I, U, uint32_t, to_i32)
TO_WHOLE(U, I, int32_t, to_u32)
INL I to_i32(D v, double low, double high) { return towards_zero(held(v, low, high)); }
INL U to_u32(D v, double low, double high) {
  U r;
  for (int j = 0; j < 16; ++j)
    r.v[j / kLanes][j % kLanes] = to_u32(double(v.v[j / (kLanes / 2)][j % (kLanes / 2)]), low, high);
  return r;
}

}  // namespace
