// SPDX-License-Identifier: Apache-2.0
// These products are bound by memory. Each value that is loaded is used with all columns of the factor, and each factor
// that is loaded with several rows: a few rows at a time, four columns of the factors at a time. With a rank above four
// the rows are read again, from the L1 cache.
#include <algorithm>

#include "base/fold.h"
#include "codec/powersgd/powersgd.h"
#include "codec/shared/common/kernels.h"
#include "codec/shared/common/payload.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/powersgd/powersgd_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::powersgd::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

constexpr std::size_t kVectors = kWide / hn::MaxLanes(Floats());  // vectors in kWide values
constexpr std::size_t kRows = kVectors >= 4 ? 1 : 4 / kVectors;   // at a time, as registers allow
constexpr std::size_t kMaxColumns = 4;

HWY_INLINE VF set(float v) { return hn::Set(Floats(), v); }
// False if vectors are emulated; then the reference does everything.
HWY_INLINE bool has_vectors() { return whole(kWide) == kWide; }

// kCount rows of the matrix, side by side. The columns after the last whole kWide are copied and extended with zeros.
template <std::size_t kCount, bool kResidual>
class Block {
 public:
  HWY_INLINE Block(const Rows& m, std::size_t first) : whole_(m.shape.cols / kWide * kWide) {
    for (std::size_t r = 0; r < kCount; ++r) {
      const std::size_t at = (first + r) * m.shape.cols;
      grad_[r] = m.in.grad + at;
      residual_[r] = kResidual ? m.in.residual + at : nullptr;
      if (whole_ == m.shape.cols) continue;
      for (std::size_t j = whole_; j < m.shape.cols; ++j) rest_[r * kWide + j - whole_] = m.in.value(at + j);
      for (std::size_t j = m.shape.cols; j < whole_ + kWide; ++j) rest_[r * kWide + j - whole_] = 0;
    }
  }
  HWY_INLINE VF at(std::size_t r, std::size_t j) const {
    const VF g = load(grad_[r] + j);
    return kResidual ? hn::Add(g, load(residual_[r] + j)) : g;
  }
  HWY_INLINE VF rest(std::size_t r, std::size_t j) const { return load(rest_ + r * kWide + j - whole_); }
  HWY_INLINE std::size_t whole_columns() const { return whole_; }

 private:
  std::size_t whole_;
  const float* grad_[kCount];
  const float* residual_[kCount];
  float rest_[kCount * kWide];
};

// ---- P = M Q

// p[i][k] = sum over j of M[i][j] q[k][j] for kCount rows and kColumns columns k from k0 on. Partial sums are the
// lanes of base/fold.h, so the order of additions equals the reference's.
template <std::size_t kCount, std::size_t kColumns, bool kResidual>
HWY_INLINE void times_block(const Rows& m, std::size_t first, std::size_t k0, const float* q, float* p) {
  const MatrixShape& s = m.shape;
  const Block<kCount, kResidual> rows(m, first);
  VF sum[kCount][kColumns][kVectors];
  for (auto& of_row : sum)
    for (auto& of_column : of_row)
      for (VF& v : of_column) v = hn::Zero(Floats());
  const auto add = [&](std::size_t j, std::size_t part, const VF* v) HWY_ATTR {
    for (std::size_t k = 0; k < kColumns; ++k) {
      const VF factor = load(q + (k0 + k) * s.width + j);
      for (std::size_t r = 0; r < kCount; ++r)
        sum[r][k][part] = hn::Add(sum[r][k][part], hn::Mul(v[r], factor));
    }
  };
  std::size_t j = 0;
  for (; j < rows.whole_columns(); j += kWide)
    for (std::size_t part = 0; part < kVectors; ++part) {
      VF v[kCount];
      for (std::size_t r = 0; r < kCount; ++r) v[r] = rows.at(r, j + part * lanes());
      add(j + part * lanes(), part, v);
    }
  if (j < s.cols)
    for (std::size_t part = 0; part < kVectors; ++part) {
      VF v[kCount];
      for (std::size_t r = 0; r < kCount; ++r) v[r] = rows.rest(r, j + part * lanes());
      add(j + part * lanes(), part, v);
    }
  for (std::size_t r = 0; r < kCount; ++r)
    for (std::size_t k = 0; k < kColumns; ++k) {
      Fold<float> fold;
      for (std::size_t part = 0; part < kVectors; ++part)
        hn::StoreU(sum[r][k][part], Floats(), fold.lane.data() + part * lanes());
      p[(first + r) * s.rank + k0 + k] = fold.total();
    }
}

template <std::size_t kCount, bool kResidual>
HWY_INLINE void times_rows(const Rows& m, std::size_t first, const float* q, float* p) {
  std::size_t k = 0;
  for (; k + kMaxColumns <= m.shape.rank; k += kMaxColumns)
    times_block<kCount, kMaxColumns, kResidual>(m, first, k, q, p);
  for (; k < m.shape.rank; ++k) times_block<kCount, 1, kResidual>(m, first, k, q, p);
}

template <bool kResidual>
void times_as(const Rows& m, const float* q, float* p) {
  std::size_t i = m.first;
  for (; i + kRows <= m.shape.full(); i += kRows) times_rows<kRows, kResidual>(m, i, q, p);
  for (; i < m.shape.full(); ++i) times_rows<1, kResidual>(m, i, q, p);
  times_from({m.in, m.shape, i}, q, p);
}

void times(const Rows& m, const float* q, float* p) {
  if (!has_vectors()) return times_from(m, q, p);
  m.in.residual ? times_as<true>(m, q, p) : times_as<false>(m, q, p);
}

// ---- Q += M' P^

// q[k][j] += sum over kCount rows of M[i][j] p[i][k], in the order of rows, like the reference.
template <std::size_t kCount, std::size_t kColumns, bool kResidual>
HWY_INLINE void transposed_block(const Rows& m, std::size_t first, std::size_t k0, const float* p, float* q) {
  const MatrixShape& s = m.shape;
  const Block<kCount, kResidual> rows(m, first);
  VF factor[kCount][kColumns];
  for (std::size_t r = 0; r < kCount; ++r)
    for (std::size_t k = 0; k < kColumns; ++k) factor[r][k] = set(p[(first + r) * s.rank + k0 + k]);
  const auto add = [&](std::size_t j, const VF* v) HWY_ATTR {
    for (std::size_t k = 0; k < kColumns; ++k) {
      float* to = q + (k0 + k) * s.width + j;
      VF sum = load(to);
      for (std::size_t r = 0; r < kCount; ++r) sum = hn::Add(sum, hn::Mul(v[r], factor[r][k]));
      hn::StoreU(sum, Floats(), to);
    }
  };
  std::size_t j = 0;
  for (; j < rows.whole_columns(); j += lanes()) {
    VF v[kCount];
    for (std::size_t r = 0; r < kCount; ++r) v[r] = rows.at(r, j);
    add(j, v);
  }
  for (; j < s.width; j += lanes()) {
    VF v[kCount];
    for (std::size_t r = 0; r < kCount; ++r) v[r] = rows.rest(r, j);
    add(j, v);
  }
}

template <std::size_t kCount, bool kResidual>
HWY_INLINE void transposed_rows(const Rows& m, std::size_t first, const float* p, float* q) {
  std::size_t k = 0;
  for (; k + kMaxColumns <= m.shape.rank; k += kMaxColumns)
    transposed_block<kCount, kMaxColumns, kResidual>(m, first, k, p, q);
  for (; k < m.shape.rank; ++k) transposed_block<kCount, 1, kResidual>(m, first, k, p, q);
}

template <bool kResidual>
void transposed_as(const Rows& m, const float* p, float* q) {
  constexpr std::size_t kAtOnce = 4;  // more rows need fewer loads and stores of q
  std::size_t i = m.first;
  for (; i + kAtOnce <= m.shape.full(); i += kAtOnce) transposed_rows<kAtOnce, kResidual>(m, i, p, q);
  for (; i < m.shape.full(); ++i) transposed_rows<1, kResidual>(m, i, p, q);
  transposed_times_from({m.in, m.shape, i}, p, 1.0F, q);
}

void transposed_times(const Rows& m, const float* p, float* q) {
  if (!has_vectors()) return transposed_times_from(m, p, 1.0F, q);
  m.in.residual ? transposed_as<true>(m, p, q) : transposed_as<false>(m, p, q);
}

// ---- P^ Q'

// The values of rows first, first + 1, ... from column j on. kRank: the rank if it is a compile-time constant, else
// 0.
template <std::size_t kCount, std::size_t kRank>
HWY_INLINE void product(const MatrixShape& s, std::size_t first, std::size_t j, const float* p,
                        const float* q, VF* v) {
  const std::size_t rank = kRank != 0 ? kRank : s.rank;
  const VF factor = load(q + j);
  for (std::size_t r = 0; r < kCount; ++r) v[r] = hn::Mul(set(p[(first + r) * rank]), factor);
  for (std::size_t k = 1; k < rank; ++k) {
    const VF next = load(q + k * s.width + j);
    for (std::size_t r = 0; r < kCount; ++r)
      v[r] = hn::Add(v[r], hn::Mul(set(p[(first + r) * rank + k]), next));
  }
}

template <std::size_t kCount, std::size_t kRank, bool kResidual>
HWY_INLINE void store_residual_rows(const Rows& m, std::size_t first, const float* p, const float* q,
                                    bool non_temporal) {
  const MatrixShape& s = m.shape;
  const std::size_t columns = whole(s.cols);
  for (std::size_t j = 0; j < columns; j += lanes()) {
    VF v[kCount];
    product<kCount, kRank>(s, first, j, p, q, v);
    for (std::size_t r = 0; r < kCount; ++r) {
      const std::size_t at = (first + r) * s.cols + j;
      store(hn::Sub(load_value<kResidual>(m.in, at), v[r]), m.in.residual_out + at, non_temporal);
    }
  }
  for (std::size_t r = 0; r < kCount; ++r)
    for (std::size_t j = columns; j < s.cols; ++j)
      m.in.store_residual((first + r) * s.cols + j, value(s, p, q, first + r, j));
}

// From the last row to the first: the last ones are still in a cache, from transposed_times().
template <std::size_t kRank, bool kResidual>
void store_residual_as(const Rows& m, const float* p, const float* q) {
  constexpr std::size_t kAtOnce = 2;  // rows of three matrices; more would conflict in one cache set
  const bool non_temporal = m.in.residual_out != m.in.residual &&
                            uses_non_temporal_stores({}, {m.in.residual_out, m.in.n}) &&
                            m.shape.cols % kWide == 0;
  store_residual_from({m.in, m.shape, m.shape.full()}, p, q);
  std::size_t i = m.shape.full();
  for (; i % kAtOnce != 0; --i) store_residual_rows<1, kRank, kResidual>(m, i - 1, p, q, non_temporal);
  for (; i > 0; i -= kAtOnce)
    store_residual_rows<kAtOnce, kRank, kResidual>(m, i - kAtOnce, p, q, non_temporal);
  if (non_temporal) hwy::FlushStream();
}

void store_residual(const Rows& m, const float* p, const float* q) {
  if (!has_vectors()) return store_residual_from(m, p, q);
  if (m.shape.rank == kMaxColumns)
    m.in.residual ? store_residual_as<kMaxColumns, true>(m, p, q)
                  : store_residual_as<kMaxColumns, false>(m, p, q);
  else
    m.in.residual ? store_residual_as<0, true>(m, p, q) : store_residual_as<0, false>(m, p, q);
}

template <std::size_t kCount, std::size_t kRank>
HWY_INLINE void values_rows(const MatrixShape& s, std::size_t first, const float* p, const float* q,
                            const Merge& merge, std::span<float> out, bool non_temporal) {
  const std::size_t columns = whole(s.cols);
  const VF by = set(merge.divide);
  for (std::size_t j = 0; j < columns; j += lanes()) {
    VF v[kCount];
    product<kCount, kRank>(s, first, j, p, q, v);
    for (std::size_t r = 0; r < kCount; ++r) {
      const std::size_t at = (first + r) * s.cols + j;
      if (merge.base) v[r] = hn::Add(load(merge.base + at), v[r]);
      if (merge.divide != 1.0F) v[r] = hn::Div(v[r], by);
      store(v[r], out.data() + at, non_temporal);
    }
  }
  for (std::size_t r = 0; r < kCount; ++r)
    for (std::size_t j = columns; j < s.cols; ++j) {
      const std::size_t at = (first + r) * s.cols + j;
      out[at] = codec::merged(merge, at, value(s, p, q, first + r, j));
    }
}

template <std::size_t kRank>
void values_as(const MatrixShape& s, const float* p, const float* q, const Merge& merge,
               std::span<float> out) {
  constexpr std::size_t kAtOnce = 4;
  const bool non_temporal = uses_non_temporal_stores(merge, out) && s.cols % kWide == 0;
  std::size_t i = 0;
  for (; i + kAtOnce <= s.full(); i += kAtOnce)
    values_rows<kAtOnce, kRank>(s, i, p, q, merge, out, non_temporal);
  for (; i < s.full(); ++i) values_rows<1, kRank>(s, i, p, q, merge, out, non_temporal);
  if (non_temporal) hwy::FlushStream();
  values_from(s, i, p, q, merge, out);
}

void values(const MatrixShape& s, const float* p, const float* q, const Merge& merge, std::span<float> out) {
  if (!has_vectors()) return values_from(s, 0, p, q, merge, out);
  s.rank == kMaxColumns ? values_as<kMaxColumns>(s, p, q, merge, out) : values_as<0>(s, p, q, merge, out);
}

}  // namespace
}  // namespace tithe::powersgd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::powersgd {
TITHE_KERNELS(const Kernels kSimd, times, transposed_times, store_residual, values);
}  // namespace tithe::powersgd
#endif
