// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): the target, its vectors, and operations common to all
// targets.
#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#define INL static inline __attribute__((always_inline, unused))
// EACH(...): the statements for each vector k.
#define AT_VECTOR(at, ...) \
  {                        \
    enum { k = at };       \
    __VA_ARGS__;           \
  }
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define W 64
#define EACH(...)             \
  do {                        \
    AT_VECTOR(0, __VA_ARGS__) \
  } while (0)
#elif defined(__AVX2__) && defined(__BMI2__) && defined(__FMA__)
#define W 32
#define EACH(...)             \
  do {                        \
    AT_VECTOR(0, __VA_ARGS__) \
    AT_VECTOR(1, __VA_ARGS__) \
  } while (0)
#else
#define W 16
#define EACH(...)             \
  do {                        \
    AT_VECTOR(0, __VA_ARGS__) \
    AT_VECTOR(1, __VA_ARGS__) \
    AT_VECTOR(2, __VA_ARGS__) \
    AT_VECTOR(3, __VA_ARGS__) \
  } while (0)
#endif

namespace {

typedef float VF __attribute__((vector_size(W)));
typedef int32_t VI __attribute__((vector_size(W)));
typedef uint32_t VU __attribute__((vector_size(W)));
typedef double VD __attribute__((vector_size(W)));
typedef int64_t VL __attribute__((vector_size(W)));
typedef float HF __attribute__((vector_size(W / 2)));
typedef int32_t HI __attribute__((vector_size(W / 2)));
enum { kVectors = 64 / W, kLanes = W / 4 };
struct F {
  VF v[kVectors];
};
struct I {
  VI v[kVectors];
};
struct U {
  VU v[kVectors];
};
#if W == 64
struct M {
  __mmask16 v;
};
#else
struct M {
  VI v[kVectors];
};  // all bits set, or none
#endif
struct D {
  VD v[2 * kVectors];
};
// Properties of a run: whether it may have fewer than sixteen values, and whether levels must be limited to their
// scale.
struct Yes {
  enum { value = 1, held = 1 };
};
struct No {
  enum { value = 0, held = 0 };
};
struct Held : No {
  enum { held = 1 };
};

template <class To, class From>
INL To cast(From v) {
  To to;
  __builtin_memcpy(&to, &v, sizeof to);
  return to;
}

INL uint32_t bits_(float a) { return cast<uint32_t>(a); }
INL float float_(uint32_t a) { return cast<float>(a); }

// ---- One number in all lanes
// Built as an initializer list: if lanes are set one by one, gcc inserts them within loops.
template <class V, class T>
INL V all(T s) {
  if constexpr (sizeof(V) / sizeof(T) == 16)
    return V{s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s};
  else if constexpr (sizeof(V) / sizeof(T) == 8)
    return V{s, s, s, s, s, s, s, s};
  else if constexpr (sizeof(V) / sizeof(T) == 4)
    return V{s, s, s, s};
  else
    return V{s, s};
}
#define SPLAT(R, T, V)        \
  INL R splat(T s) {          \
    R r;                      \
    EACH(r.v[k] = all<V>(s)); \
    return r;                 \
  }
SPLAT(F, float, VF)
SPLAT(U, uint32_t, VU)
SPLAT(I, int32_t, VI)
INL D splat(double s) {
  D r;
  EACH(r.v[2 * k] = all<VD>(s); r.v[2 * k + 1] = all<VD>(s));
  return r;
}
// Keeps a constant in a register or in memory: gcc would otherwise build it from an immediate at each use.
#if W == 16
#define KEPT(T) \
  INL T kept(T a) { return a; }
#define KEPT_D KEPT(D)
#else
#if W == 64
#define KEPT_IN(v) __asm__("" : "+v"(v))
#else
#define KEPT_IN(v) __asm__("" : "+x"(v))
#endif
#define KEPT(T)            \
  INL T kept(T a) {        \
    EACH(KEPT_IN(a.v[k])); \
    return a;              \
  }
#define KEPT_D                                          \
  INL D kept(D a) {                                     \
    EACH(KEPT_IN(a.v[2 * k]); KEPT_IN(a.v[2 * k + 1])); \
    return a;                                           \
  }
#endif
KEPT(F)
KEPT(I)
KEPT(U)
KEPT_D
INL U lanes() {
  U r;
  EACH(for (int j = 0; j < kLanes; ++j) r.v[k][j] = uint32_t(k * kLanes + j));
  return r;
}

// Vector by vector: for 64 bytes at once gcc goes through the stack.
INL F load(const float* p) {
  F r;
  EACH(__builtin_memcpy(&r.v[k], p + k * kLanes, W));
  return r;
}
INL void store(float* p, F v) { EACH(__builtin_memcpy(p + k * kLanes, &v.v[k], W)); }
INL F load_some(const float* p, size_t count) {
  float all[16] = {};
  __builtin_memcpy(all, p, 4 * count);
  return load(all);
}
INL void store_some(float* p, F v, size_t count) {
  float all[16];
  store(all, v);
  __builtin_memcpy(p, all, 4 * count);
}

// ---- Operators
#define ONE(R, T, name, expr) \
  INL R name(T a) {           \
    R r;                      \
    EACH(r.v[k] = expr);      \
    return r;                 \
  }
#define TWO(R, T, name, expr) \
  INL R name(T a, T b) {      \
    R r;                      \
    EACH(r.v[k] = expr);      \
    return r;                 \
  }
#define D_EACH(expr)        \
  EACH({                    \
    enum { j = 2 * k };     \
    r.v[j] = expr;          \
  } {                       \
    enum { j = 2 * k + 1 }; \
    r.v[j] = expr;          \
  })
#define D_ONE(name, expr) \
  INL D name(D a) {       \
    D r;                  \
    D_EACH(expr);         \
    return r;             \
  }
#define D_TWO(name, expr) \
  INL D name(D a, D b) {  \
    D r;                  \
    D_EACH(expr);         \
    return r;             \
  }
#define D_THREE(name, expr)   \
  INL D name(D a, D b, D c) { \
    D r;                      \
    D_EACH(expr);             \
    return r;                 \
  }
#define NUMBERS(T)                \
  TWO(T, T, add, a.v[k] + b.v[k]) \
  TWO(T, T, sub, a.v[k] - b.v[k]) \
  TWO(T, T, mul, a.v[k] * b.v[k]) \
  ONE(T, T, neg, -a.v[k])
NUMBERS(F)
NUMBERS(I)
NUMBERS(U)
TWO(F, F, div_, a.v[k] / b.v[k])
#define BITS(T)                    \
  TWO(T, T, and_, a.v[k] & b.v[k]) \
  TWO(T, T, or_, a.v[k] | b.v[k])  \
  TWO(T, T, xor_, a.v[k] ^ b.v[k]) \
  ONE(T, T, not_, ~a.v[k])
BITS(I)
BITS(U)
D_TWO(add, a.v[j] + b.v[j])
D_TWO(sub, a.v[j] - b.v[j])
D_TWO(mul, a.v[j] * b.v[j])
D_TWO(div_, a.v[j] / b.v[j])
D_ONE(neg, -a.v[j])
D_ONE(abs_, (VD)((VL)a.v[j] & INT64_MAX))
D_TWO(signed_as, (VD)((VL)a.v[j] | ((VL)b.v[j] & INT64_MIN)))
ONE(F, F, abs_, (VF)((VU)a.v[k] & 0x7fffffffU))
ONE(U, F, bits_, (VU)a.v[k])
ONE(F, U, float_, (VF)a.v[k])
TWO(F, F, copysign_, (VF)(((VU)a.v[k] & 0x7fffffffU) | ((VU)b.v[k] & 0x80000000U)))
ONE(U, I, as_u, (VU)a.v[k])
ONE(I, U, as_i, (VI)a.v[k])
INL U as_u(U a) { return a; }
#define SHIFT_BY(name, op)        \
  template <int kBy>              \
  INL U name(U a) {               \
    EACH(a.v[k] = a.v[k] op kBy); \
    return a;                     \
  }                               \
  template <int kBy>              \
  INL I name(I a) {               \
    EACH(a.v[k] = a.v[k] op kBy); \
    return a;                     \
  }
SHIFT_BY(shl_by, <<)
SHIFT_BY(shr_by, >>)
ONE(F, I, from_i32, __builtin_convertvector(a.v[k], VF))
ONE(I, F, towards_zero, __builtin_convertvector(a.v[k], VI))

}  // namespace
