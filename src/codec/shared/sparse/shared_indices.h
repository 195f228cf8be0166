// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base of randomk and of programs that send `values at indices`: all ranks can compute the indices, so payloads are
// arrays of values that add up (codec/shared/sparse/sparse_values.h). A Source yields the indices in increasing order:
//   std::size_t read(std::span<std::uint32_t> indices)   writes the next indices, returns how many; fewer than
//                                                        indices.size() only at the end
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/common/residuals.h"
#include "codec/shared/sparse/sparse_values.h"
#include "tithe/seam/codec.h"

namespace tithe::sparse {

// Reads a Source in batches; each batch ends at a bound that the caller gives.
template <typename Source>
class IndexBatches {
 public:
  explicit IndexBatches(Source source) : source_(std::move(source)) {}
  // The next unread indices below `end`, or some of them. Empty: no unread index is below `end`.
  std::span<const std::uint32_t> below(std::size_t end) {
    if (next_ == held_) {
      next_ = 0;
      held_ = source_.read(index_);
    }
    const std::size_t first = next_;
    while (next_ < held_ && index_[next_] < end) ++next_;
    return {index_.data() + first, next_ - first};
  }

 private:
  Source source_;
  std::array<std::uint32_t, 1024> index_;
  std::size_t held_ = 0;
  std::size_t next_ = 0;
};

// Writes a value array in index order. Rounding errors of the form are written to residual_out.
class ArrayWriter {
 public:
  ArrayWriter(ValueForm form, const EncodeInput& in, std::uint8_t* array)
      : form_(form), in_(in), array_(array) {}

  void send(std::uint32_t index, float v) {
    index_[held_] = index;
    value_[held_++] = v + 0.0F;  // -0 becomes +0, as it would in a sum
    if (held_ == kValueBlock) flush();
  }
  // Sends the values at these indices, after store_residuals().
  void send_at(std::span<const std::uint32_t> indices) {
    if (form_ != ValueForm::kF32) {
      for (const std::uint32_t i : indices) send(i, codec::encoded_value(in_, i));
      return;
    }
    std::uint8_t* to = array_ + 4 * written_;
    for (const std::uint32_t i : indices) {
      wire::put(to, codec::encoded_value(in_, i) + 0.0F), to += 4;
      if (in_.residual_out) in_.residual_out[i] = 0.0F;
    }
    written_ += indices.size();
  }
  // The array's bytes.
  std::size_t finish() {
    flush();
    return value_bytes(form_, written_);
  }

 private:
  void flush() {
    std::uint8_t* to = array_ + value_bytes(form_, written_);
    write_values(form_, {value_.data(), held_}, to);
    if (in_.residual_out)
      for (std::size_t k = 0; k < held_; ++k)
        in_.residual_out[index_[k]] = form_ == ValueForm::kF32 ? 0.0F : value_[k] - value_at(form_, to, k);
    written_ += held_;
    held_ = 0;
  }

  const ValueForm form_;
  const EncodeInput& in_;
  std::uint8_t* const array_;
  std::array<std::uint32_t, kValueBlock> index_{};
  std::array<float, kValueBlock> value_{};
  std::size_t held_ = 0;
  std::size_t written_ = 0;
};

// store_residuals(), then sends the values at the indices of `source`. True if all taken values are finite.
template <typename Source>
bool store_residuals_and_send(const EncodeInput& in, Source source, ArrayWriter& writer) {
  IndexBatches<Source> indices(std::move(source));
  return codec::store_residuals_and_pick(in, [&](std::size_t end) {
    for (auto some = indices.below(end); !some.empty(); some = indices.below(end)) writer.send_at(some);
  });
}

// With a rounding form, sums must be below this limit: then the rounding errors of 256 ranks have a finite sum.
inline constexpr float kMaxRoundedSum = 0x1p119F;

// acc += in, value by value in fp32, written in the form of the arrays. The form's rounding error is added to
// residual_out at the value's index, unless residual_out is nullptr. False: a sum is not finite or too large to be
// rounded; that sum becomes 0.
template <typename Source>
bool add_arrays(ValueForm form, std::size_t count, std::uint8_t* acc, const std::uint8_t* in,
                float* residual_out, Source indices) {
  const bool rounds = residual_out != nullptr && form != ValueForm::kF32;
  const float most = form == ValueForm::kF32 ? std::numeric_limits<float>::max() : kMaxRoundedSum;
  bool finite = true;
  std::array<std::uint32_t, kValueBlock> index{};
  for (std::size_t first = 0; first < count; first += kValueBlock) {
    const std::size_t length = std::min(kValueBlock, count - first);
    std::array<float, kValueBlock> sum{};
    for (std::size_t k = 0; k < length; ++k) {
      sum[k] = value_at(form, acc, first + k) + value_at(form, in, first + k);
      const bool held = std::fabs(sum[k]) <= most;
      finite = finite && held;
      if (!held) sum[k] = 0.0F;
    }
    write_values(form, {sum.data(), length}, acc + value_bytes(form, first));
    if (!rounds) continue;
    indices.read({index.data(), length});
    for (std::size_t k = 0; k < length; ++k) {
      residual_out[index[k]] += sum[k] - value_at(form, acc, first + k);
      finite = finite && is_finite(residual_out[index[k]]);
    }
  }
  return finite;
}

// A value array and the indices of its values.
template <typename Source>
struct IndexedArray {
  ValueForm form;
  const std::uint8_t* array;
  IndexBatches<Source> indices;
  std::size_t read = 0;
};

// Merges the arrays into one part of the output after another: a part stays in the L1 cache until all arrays are added.
template <typename Source>
void merge_some(std::span<std::optional<IndexedArray<Source>>> all, const Merge& merge,
                std::span<float> out) {
  constexpr std::size_t kPart = 8192;
  for (std::size_t start = 0; start < out.size(); start += kPart) {
    const std::size_t end = std::min(start + kPart, out.size());
    const std::span<float> part = out.subspan(start, end - start);
    codec::begin_sum(codec::merge_from(merge, start), part);
    for (std::optional<IndexedArray<Source>>& one : all) {
      IndexedArray<Source>& p = *one;
      for (auto some = p.indices.below(end); !some.empty(); some = p.indices.below(end)) {
        const std::uint8_t* from = p.array + 4 * p.read;
        if (p.form == ValueForm::kF32)
          for (const std::uint32_t i : some) out[i] += wire::get<float>(from), from += 4;
        else
          for (std::size_t k = 0; k < some.size(); ++k) out[some[k]] += value_at(p.form, p.array, p.read + k);
        p.read += some.size();
      }
    }
    codec::end_sum(merge, part);
  }
}

// Merges payloads, kAtOnce at a time, since their readers are on the stack. array_of(payload) is its IndexedArray.
template <typename Source>
void merge_arrays(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
                  const auto& array_of) {
  constexpr std::size_t kAtOnce = 8;
  codec::merge_in_groups(kAtOnce, payloads, merge, out,
                         [&](std::span<const ByteView> some, const Merge& step, std::span<float> to) {
                           std::array<std::optional<IndexedArray<Source>>, kAtOnce> all;
                           for (std::size_t k = 0; k < some.size(); ++k) all[k].emplace(array_of(some[k]));
                           merge_some(std::span(all).first(some.size()), step, to);
                         });
}

}  // namespace tithe::sparse
