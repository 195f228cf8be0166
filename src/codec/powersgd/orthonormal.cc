// SPDX-License-Identifier: Apache-2.0
// Cholesky QR, twice (Yamamoto et al. 2015): each handles all columns in two passes over the rows, while Gram-Schmidt
// makes a pass per pair of columns. In double precision, so that the error of the first is small and the second
// corrects it.
//
//   G = P'P;  R'R = G, R upper triangular;  P := P R^-1
//
// Sums over rows have the order of base/fold.h, all others index order. P R^-1 is computed column by column:
// p_k := (p_k - R[0][k] p_0 - R[1][k] p_1 - ...) / R[k][k].
#include <array>
#include <cmath>

#include "base/fold.h"
#include "codec/powersgd/powersgd.h"

namespace tithe::powersgd {
namespace {

constexpr double kInSpan = 0x1p-40;  // fraction of a column's squared norm

double dot(const double* a, const double* b, std::size_t n) {
  Fold<double> sum;
  std::size_t i = 0;
  for (; i + kFoldLanes <= n; i += kFoldLanes)
    for (std::size_t k = 0; k < kFoldLanes; ++k) sum.lane[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sum.add(i, a[i] * b[i]);
  return sum.total();
}

// columns: rank of them, each of `rows` numbers.
void orthogonalise(std::size_t rows, std::size_t rank, double* columns) {
  std::array<double, kMaxRank * kMaxRank> r;  // NOLINT(*-member-init): row k is set when it is needed
  const auto at = [&r](std::size_t row, std::size_t column) -> double& { return r[row * kMaxRank + column]; };
  const auto column = [&](std::size_t k) { return columns + k * rows; };
  for (std::size_t k = 0; k < rank; ++k)
    for (std::size_t l = k; l < rank; ++l) at(k, l) = dot(column(k), column(l), rows);
  for (std::size_t k = 0; k < rank; ++k) {
    double square = at(k, k);
    for (std::size_t m = 0; m < k; ++m) square -= at(m, k) * at(m, k);
    const bool independent = square > kInSpan * at(k, k);  // not so for a NaN either
    at(k, k) = independent ? std::sqrt(square) : 0;
    for (std::size_t l = k + 1; l < rank; ++l) {
      double v = at(k, l);
      for (std::size_t m = 0; m < k; ++m) v -= at(m, k) * at(m, l);
      at(k, l) = independent ? v / at(k, k) : 0;
    }
  }
  for (std::size_t k = 0; k < rank; ++k) {
    double* p = column(k);
    if (at(k, k) == 0) {
      for (std::size_t i = 0; i < rows; ++i) p[i] = 0;
      continue;
    }
    for (std::size_t l = 0; l < k; ++l) {
      const double* before = column(l);
      const double factor = at(l, k);
      for (std::size_t i = 0; i < rows; ++i) p[i] -= factor * before[i];
    }
    const double length = at(k, k);
    for (std::size_t i = 0; i < rows; ++i) p[i] /= length;
  }
}

}  // namespace

void make_orthonormal(std::size_t rows, std::size_t rank, float* p, double* room) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k) room[k * rows + i] = p[i * rank + k];
  orthogonalise(rows, rank, room);
  orthogonalise(rows, rank, room);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k) p[i * rank + k] = static_cast<float>(room[k * rows + i]);
}

}  // namespace tithe::powersgd
