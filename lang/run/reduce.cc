// SPDX-License-Identifier: Apache-2.0
#include "lang/run/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace tithe::lang {

namespace {

// Adds value i to lane i mod kFoldLanes. Runs start at multiples of kFoldLanes, so the lanes are independent of the
// runs.
template <typename T>
void fold(const T* v, const std::uint32_t* which, std::size_t count, Fold<T>& into) {
  std::size_t i = 0;
  for (; i + kFoldLanes <= count; i += kFoldLanes)
    for (std::size_t k = 0; k < kFoldLanes; ++k)
      into.lane[k] += which == nullptr || which[i + k] != 0 ? v[i + k] : T{0};
  for (; i < count; ++i)
    if (which == nullptr || which[i] != 0) into.add(i, v[i]);
}

template <typename T>
T held(T sum) {
  constexpr T kMax = std::numeric_limits<T>::max();
  return std::clamp(sum, -kMax, kMax);
}

}  // namespace

// The total of piece p is value p of the second-level sum.
void Reduction::end_piece(const Registers& registers, int k) {
  if (registers.node(k).op == Op::kReduce) return running_->end_piece(registers, k);
  const std::size_t piece = (seen_ - 1) / kPiece;
  pieces_.add(piece, piece_.total());
  pieces64_.add(piece, piece64_.total());
  piece_ = {};
  piece64_ = {};
}

namespace {

template <typename T>
bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}

}  // namespace

template <typename T>
void Reduction::add_ends(const T* v, const std::uint32_t* which, std::size_t count, bool largest, T& best) {
  if constexpr (!std::is_floating_point_v<T>)
    if (which == nullptr && count > 0) {
      T most = found_ ? best : v[0];
      for (std::size_t i = 0; i < count; ++i) most = largest ? std::max(most, v[i]) : std::min(most, v[i]);
      best = most;
      found_ = true;
      return;
    }
  for (std::size_t i = 0; i < count; ++i) {
    if ((which != nullptr && which[i] == 0) || is_nan(v[i])) continue;
    if (!found_ || (largest ? best < v[i] : v[i] < best)) best = v[i];
    found_ = true;
  }
}

// count_ is the divisor of a mean and the result of a count. After every kPiece values the piece's partial sum is
// added to the pieces' sum, so the result does not depend on the run lengths.
void Reduction::add(const Registers& registers, int k, std::size_t count, std::size_t from) {
  const Node& node = registers.node(k);
  const int of = node.in[0];
  const Type type = registers.node(of).type;
  const std::uint32_t* which = node.in[1] == kNone ? nullptr : registers.of<std::uint32_t>(node.in[1]) + from;
  const std::uint32_t* truth = registers.of<std::uint32_t>(of) + from;
  const auto counts = [&](std::size_t i) { return which == nullptr || which[i] != 0; };
  switch (node.op) {
    case Op::kSum:
    case Op::kMean:
      if (type == Type::kF32) fold(registers.of<float>(of) + from, which, count, piece_);
      if (type == Type::kF64) fold(registers.of<double>(of) + from, which, count, piece64_);
      break;
    case Op::kLargest:
    case Op::kSmallest:
      by_type(type, [&]<typename T>(T) {
        add_ends(registers.of<T>(of) + from, which, count, node.op == Op::kLargest, std::get<T>(best_));
      });
      break;
    case Op::kReduce:
      if (!running_) running_.emplace();
      running_->add(registers, k, count);
      break;
    case Op::kHistogram:
    case Op::kSort:
    case Op::kOrder:
      add_to_table(registers, k, seen_, count);
      break;
    default:
      for (std::size_t i = 0; i < count; ++i) {
        if (!counts(i)) continue;
        any_ = any_ || truth[i] != 0;
        all_ = all_ && truth[i] != 0;
      }
  }
  if (node.op == Op::kCount) {
    for (std::size_t i = 0; i < count; ++i) count_ += counts(i) && truth[i] != 0 ? 1 : 0;
  } else if (which == nullptr) {
    count_ += count;
  } else {
    for (std::size_t i = 0; i < count; ++i) count_ += which[i] != 0 ? 1 : 0;
  }
  seen_ += count;
  if (seen_ % kPiece == 0 && seen_ > 0) end_piece(registers, k);
}

void Reduction::finish(const Registers& registers, int k) {
  const Node& node = registers.node(k);
  if (seen_ % kPiece != 0) end_piece(registers, k);
  const float sum = held(pieces_.total());
  const double sum64 = held(pieces64_.total());
  const bool mean = node.op == Op::kMean;
  if (is_table(node.op)) return finish_table(registers, k, seen_);
  switch (node.op) {
    case Op::kSum:
    case Op::kMean:
      if (node.type == Type::kF32)
        *registers.of<float>(k) = !mean ? sum : count_ == 0 ? 0.0F : sum / static_cast<float>(count_);
      else
        *registers.of<double>(k) = !mean ? sum64 : count_ == 0 ? 0.0 : sum64 / static_cast<double>(count_);
      break;
    case Op::kLargest:
    case Op::kSmallest:
      by_type(node.type, [&]<typename T>(T) { *registers.of<T>(k) = std::get<T>(best_); });
      break;
    case Op::kReduce:
      if (!running_) running_.emplace();
      return running_->finish(registers, k);
    case Op::kCount:
      *registers.of<std::uint32_t>(k) = static_cast<std::uint32_t>(count_);
      break;
    case Op::kAny:
      *registers.of<std::uint32_t>(k) = any_ ? 1 : 0;
      break;
    default:
      *registers.of<std::uint32_t>(k) = all_ ? 1 : 0;
  }
}

}  // namespace tithe::lang
