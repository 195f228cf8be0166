// SPDX-License-Identifier: Apache-2.0
#pragma once
// powersgd: the n values as a matrix M, of which travel two narrow factors (Vogels, Karimireddy and Jaggi, "PowerSGD",
// NeurIPS 2019). One step of subspace iteration a round, begun with the factor of the round before:
//
//   phase 0 (sum)    P = M Q            rows x r
//   everybody        P^ = the sum of all P with its columns made orthonormal
//   phase 1 (sum)    Q = M' P^          cols x r
//   result           P^ (sum of all Q)'; that Q, its columns scaled, is the next round's
//
// A worker leaves M - P^ Q' with its own Q: that of all workers adds up to what the result lacks.
//
//   shape     cols values a row, rows = ceil(n / cols), the last row filled up with zeros. cols is a parameter; where
//             it is 0, the nearest to a square. The plan sets it from the tensor's shape (tithe/plan.h)
//   small     where r (rows + cols) >= n, phase 0 says so and phase 1 sends the values as fp32
//   begin     a column of Q that is 0, as all are at first, is drawn from the seed that all ranks share
//   large     a matrix with values that would bring a sum near overflow sends a 2^40th of itself
//   order     every sum has one shape: along a row that of base/fold.h, down a column that of its index, over r that of
//             its index. So it has the same bits everywhere; a BLAS would not give them
//
// Layout   phase 0: u32 r | u32 cols | u64 hash of the Q that was used | f32 P[rows][r]    (r = cols = hash = 0: small)
//          phase 1: f32 Q[r][cols]                                                   (small: n x f32)
// Memory   f32 Q[r][cols], a column (of M'P^) below 2^-s with s = 8 + bits of cols, and 0 or not below 2^-s-1: no sum
//          of 256 ranks' P overflows then
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/codec.h"

namespace tithe {
extern const Codec powersgd_codec;
}

namespace tithe::powersgd {

inline constexpr std::size_t kHead = 16;
inline constexpr std::size_t kMostRank = 32;
inline constexpr std::size_t kWide = 16;  // rows of Q are filled up with zeros to a multiple of this

// How n values lie in their matrix; rank 0: small.
struct Shape {
  std::size_t n = 0, rows = 0, cols = 0, rank = 0;
  std::size_t width = 0;                                         // cols, filled up
  std::size_t full() const { return cols == 0 ? 0 : n / cols; }  // rows without the one that is filled up
};
Shape shape_of(const Settings& s, std::size_t n);

// A run of M's rows, as encode reads it.
struct Rows {
  const Carry& in;
  const Shape& shape;
  std::size_t first;  // from this row to the last
};

// Value j of row i of P^ Q'.
inline float value(const Shape& s, const float* p, const float* q, std::size_t i, std::size_t j) {
  float v = p[i * s.rank] * q[j];
  for (std::size_t k = 1; k < s.rank; ++k) v += p[i * s.rank + k] * q[k * s.width + j];
  return v;
}
inline float merged(const Merge& merge, std::size_t at, float v) {
  const float sum = merge.base ? merge.base[at] + v : v;
  return merge.divide == 1.0F ? sum : sum / merge.divide;
}

// The products, of rows `first` and after. p: [rows][rank], q: [rank][width].
//   times    p[i][k] = sum over j of M[i][j] q[k][j]
//   turned   q[k][j] += sum over i of M[i][j] p[i][k]
//   leave    residual_out[i][j] = M[i][j] - value(i, j)
//   values   out[i][j] = (base[i][j] + value(i, j)) / divide
void times_from(const Rows& m, const float* q, float* p);
void turned_from(const Rows& m, const float* p, float scale, float* q);
void leave_from(const Rows& m, const float* p, const float* q);
void values_from(const Shape& shape, std::size_t first, const float* p, const float* q, const Merge& merge,
                 std::span<float> out);

// The same of all rows.
struct Kernels {
  void (*times)(const Rows& m, const float* q, float* p);
  void (*turned)(const Rows& m, const float* p, float* q);
  void (*leave)(const Rows& m, const float* p, const float* q);
  void (*values)(const Shape& shape, const float* p, const float* q, const Merge& merge,
                 std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // powersgd_simd.cc

// p: [rows][rank], from a sum to orthonormal columns that span the same; room: rows x rank. A column that lies in the
// span of those before it, to within 2^-20 of its length, becomes 0. See orthonormal.cc for the shape of its sums.
void make_orthonormal(std::size_t rows, std::size_t rank, float* p, double* room);

}  // namespace tithe::powersgd
