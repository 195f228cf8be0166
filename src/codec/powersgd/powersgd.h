// SPDX-License-Identifier: Apache-2.0
#pragma once
// powersgd: takes the n values as a matrix M and sends two narrow factors of it (Vogels, Karimireddy and Jaggi,
// "PowerSGD", NeurIPS 2019). Each round does one step of subspace iteration, starting with the last round's factor Q:
//
//   phase 0 (sum)    P = M Q            rows x r
//   every rank       P^ = the sum of all P, its columns made orthonormal
//   phase 1 (sum)    Q = M' P^          cols x r
//   result           P^ (sum of all Q)'; the sum of all Q, its columns scaled, is the next round's Q
//
// residual_out is M - P^ Q' with the worker's own Q. Its sum over all workers is the error of the result.
//
//   shape     cols values per row, rows = ceil(n / cols); zeros extend the last row. cols is a parameter; cols = 0: the
//             matrix nearest to a square. The plan sets cols from the tensor's shape (tithe/seam/plan.h)
//   small     if r (rows + cols) >= n, phase 0 sends a head of zeros and phase 1 the values as fp32
//   start     a zero column of Q is drawn at random from the shared seed; at first all columns are zero
//   large     a matrix whose sums might overflow sends 2^-40 times its values
//   order     every sum has a fixed order: along a row that of base/fold.h, down a column and over r index order. So
//             the bits are the same everywhere, which a BLAS does not promise
//
// Layout   phase 0: u32 r | u32 cols | u64 hash of the Q that was used | f32 P[rows][r]    (r = cols = hash = 0: small)
//          phase 1: f32 Q[r][cols]                                                   (small: n x f32)
// Memory   f32 Q[r][cols]. The largest magnitude of a column (of M'P^) is 0 or in [2^-(s+1), 2^-s), with
//          s = 8 + the bit width of cols; so no sum of 256 ranks' P overflows
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec powersgd_codec;
}

namespace tithe::powersgd {

inline constexpr std::size_t kHead = 16;
inline constexpr std::size_t kMaxRank = 32;
inline constexpr std::size_t kWide = 16;  // zeros extend the rows of Q to a multiple of this

// The shape of the matrix of n values; rank 0: small.
struct MatrixShape {
  std::size_t n = 0, rows = 0, cols = 0, rank = 0;
  std::size_t width = 0;                                         // cols, rounded up to a multiple of kWide
  std::size_t full() const { return cols == 0 ? 0 : n / cols; }  // rows that no zeros extend
};
MatrixShape shape_of(const Settings& s, std::size_t n);

// The rows of M from `first` to the last, as encode reads them.
struct Rows {
  const EncodeInput& in;
  const MatrixShape& shape;
  std::size_t first;
};

// Value j of row i of P^ Q'.
inline float value(const MatrixShape& s, const float* p, const float* q, std::size_t i, std::size_t j) {
  float v = p[i * s.rank] * q[j];
  for (std::size_t k = 1; k < s.rank; ++k) v += p[i * s.rank + k] * q[k * s.width + j];
  return v;
}

// The products, for the rows from `first` on. p: [rows][rank], q: [rank][width].
//   times             p[i][k] = sum over j of M[i][j] q[k][j]
//   transposed_times  q[k][j] += sum over i of M[i][j] p[i][k]
//   store_residual    residual_out[i][j] = M[i][j] - value(i, j)
//   values            out[i][j] = (base[i][j] + value(i, j)) / divide
void times_from(const Rows& m, const float* q, float* p);
void transposed_times_from(const Rows& m, const float* p, float scale, float* q);
void store_residual_from(const Rows& m, const float* p, const float* q);
void values_from(const MatrixShape& shape, std::size_t first, const float* p, const float* q,
                 const Merge& merge, std::span<float> out);

// The products, for all rows.
struct Kernels {
  void (*times)(const Rows& m, const float* q, float* p);
  void (*transposed_times)(const Rows& m, const float* p, float* q);
  void (*store_residual)(const Rows& m, const float* p, const float* q);
  void (*values)(const MatrixShape& shape, const float* p, const float* q, const Merge& merge,
                 std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // powersgd_simd.cc

// Makes the columns of p [rows][rank] orthonormal; they span the same space. room: rows x rank elements. A column that
// lies in the span of the columns before it, to within 2^-20 of its length, becomes 0. orthonormal.cc has the order of
// its sums.
void make_orthonormal(std::size_t rows, std::size_t rank, float* p, double* room);

}  // namespace tithe::powersgd
