// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values at places that all ranks know alike, so that payloads add up as arrays (codec/sparse/sparse_values.h): what
// randomk and scalecom share. Places come in increasing order from a Source:
//   std::size_t read(std::span<std::uint32_t> places)   the next ones; how many: less than there is room for only at
//                                                       the end
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/common/leave.h"
#include "codec/common/payload.h"
#include "codec/sparse/sparse_values.h"
#include "tithe/codec.h"

namespace tithe::sparse {

// The places of a Source up to one bound after the other.
template <typename Source>
class Listed {
 public:
  explicit Listed(Source source) : source_(std::move(source)) {}
  // The next places that are below `end`, or the first of them; none: there are no more.
  std::span<const std::uint32_t> below(std::size_t end) {
    if (next_ == held_) {
      next_ = 0;
      held_ = source_.read(place_);
    }
    const std::size_t first = next_;
    while (next_ < held_ && place_[next_] < end) ++next_;
    return {place_.data() + first, next_ - first};
  }

 private:
  Source source_;
  std::array<std::uint32_t, 1024> place_;
  std::size_t held_ = 0;
  std::size_t next_ = 0;
};

// Writes an array, values in the order of their places, and leaves what their form rounds off.
class ArrayWriter {
 public:
  ArrayWriter(ValueForm form, const Carry& in, std::uint8_t* array) : form_(form), in_(in), array_(array) {}

  void send(std::uint32_t place, float v) {
    place_[held_] = place;
    value_[held_++] = v + 0.0F;  // -0 becomes +0, as it would in a sum
    if (held_ == kValueBlock) flush();
  }
  // Values that have been left whole.
  void send_left(std::span<const std::uint32_t> places) {
    if (form_ != ValueForm::kF32) {
      for (const std::uint32_t i : places) send(i, codec::left_value(in_, i));
      return;
    }
    std::uint8_t* to = array_ + 4 * written_;
    for (const std::uint32_t i : places) {
      wire::put(to, codec::left_value(in_, i) + 0.0F), to += 4;
      if (in_.residual_out) in_.residual_out[i] = 0.0F;
    }
    written_ += places.size();
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
        in_.residual_out[place_[k]] = form_ == ValueForm::kF32 ? 0.0F : value_[k] - value_at(form_, to, k);
    written_ += held_;
    held_ = 0;
  }

  const ValueForm form_;
  const Carry& in_;
  std::uint8_t* const array_;
  std::array<std::uint32_t, kValueBlock> place_{};
  std::array<float, kValueBlock> value_{};
  std::size_t held_ = 0;
  std::size_t written_ = 0;
};

// All values are left, then those at the places are sent. True if all are finite.
template <typename Source>
bool leave_and_send(const Carry& in, Source source, ArrayWriter& writer) {
  Listed<Source> places(std::move(source));
  return codec::leave_and_pick(in, [&](std::size_t end) {
    for (auto some = places.below(end); !some.empty(); some = places.below(end)) writer.send_left(some);
  });
}

// Sums that are rounded are to be smaller: what a form takes of each of 256 ranks' is finite together, at its worst.
inline constexpr float kMostRoundedSum = 0x1p119F;

// acc += in, value by value in fp32, written in the arrays' form. What that rounds off goes to left, if there is one,
// at the value's place. False: a sum is not finite, or too large to be rounded; it becomes 0.
template <typename Source>
bool add_arrays(ValueForm form, std::size_t count, std::uint8_t* acc, const std::uint8_t* in, float* left,
                Source places) {
  const bool rounds = left != nullptr && form != ValueForm::kF32;
  const float most = form == ValueForm::kF32 ? std::numeric_limits<float>::max() : kMostRoundedSum;
  bool finite = true;
  std::array<std::uint32_t, kValueBlock> place{};
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
    places.read({place.data(), length});
    for (std::size_t k = 0; k < length; ++k) {
      left[place[k]] += sum[k] - value_at(form, acc, first + k);
      finite = finite && is_finite(left[place[k]]);
    }
  }
  return finite;
}

// An array and where its values belong.
template <typename Source>
struct Placed {
  ValueForm form;
  const std::uint8_t* array;
  Listed<Source> places;
  std::size_t read = 0;
};

// Adds them up part after part of the output, which stays in the nearest cache until all have been added.
template <typename Source>
void merge_some(std::span<std::optional<Placed<Source>>> all, const Merge& merge, std::span<float> out) {
  constexpr std::size_t kPart = 8192;
  for (std::size_t start = 0; start < out.size(); start += kPart) {
    const std::size_t end = std::min(start + kPart, out.size());
    if (merge.base == nullptr)
      std::fill_n(out.data() + start, end - start, 0.0F);
    else if (merge.base != out.data())
      std::copy_n(merge.base + start, end - start, out.data() + start);
    for (std::optional<Placed<Source>>& one : all) {
      Placed<Source>& p = *one;
      for (auto some = p.places.below(end); !some.empty(); some = p.places.below(end)) {
        const std::uint8_t* from = p.array + 4 * p.read;
        if (p.form == ValueForm::kF32)
          for (const std::uint32_t i : some) out[i] += wire::get<float>(from), from += 4;
        else
          for (std::size_t k = 0; k < some.size(); ++k) out[some[k]] += value_at(p.form, p.array, p.read + k);
        p.read += some.size();
      }
    }
    if (merge.divide != 1.0F)
      for (float& v : out.subspan(start, end - start)) v /= merge.divide;
  }
}

// Payloads merged; place(payload) says where the values of one belong. As many at a time as have room on the stack.
template <typename Source>
void merge_arrays(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
                  const auto& place) {
  constexpr std::size_t kAtOnce = 8;
  codec::merge_in_groups(kAtOnce, payloads, merge, out,
                         [&](std::span<const ByteView> some, const Merge& step, std::span<float> to) {
                           std::array<std::optional<Placed<Source>>, kAtOnce> all;
                           for (std::size_t k = 0; k < some.size(); ++k) all[k].emplace(place(some[k]));
                           merge_some(std::span(all).first(some.size()), step, to);
                         });
}

}  // namespace tithe::sparse
