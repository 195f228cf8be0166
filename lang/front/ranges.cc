// SPDX-License-Identifier: Apache-2.0
#include "lang/front/ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tithe::lang {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Range kAnyBool{0, 1};

// Rounding is monotonic, so the ends of the rounded range are the rounded ends.
Range rounded(Range r, Type type) {
  if (std::isnan(r.low) || std::isnan(r.high)) return {-kInf, kInf};
  if (type == Type::kF32)
    return {static_cast<double>(static_cast<float>(r.low)), static_cast<double>(static_cast<float>(r.high))};
  return r;
}

template <typename Of>
Range of_corners(Range a, Range b, Of of) {
  const double all[] = {of(a.low, b.low), of(a.low, b.high), of(a.high, b.low), of(a.high, b.high)};
  for (const double v : all)
    if (std::isnan(v)) return {-kInf, kInf};
  return {*std::min_element(std::begin(all), std::end(all)),
          *std::max_element(std::begin(all), std::end(all))};
}

Range absolute(Range a) {
  const double low = std::fabs(a.low), high = std::fabs(a.high);
  return {a.low <= 0 && a.high >= 0 ? 0 : std::min(low, high), std::max(low, high)};
}

// The smallest 2^k - 1 that is not below v.
double all_ones(double v) {
  double ones = 1;
  while (ones - 1 < v && ones < 0x1p33) ones *= 2;
  return ones - 1;
}

Range arithmetic(Op op, Type type, Range a, Range b) {
  switch (op) {
    case Op::kAdd:
      return {a.low + b.low, a.high + b.high};
    case Op::kSub:
      return {a.low - b.high, a.high - b.low};
    case Op::kMul:
      return of_corners(a, b, [](double x, double y) { return x * y; });
    case Op::kDiv:
      if (b.low <= 0 && b.high >= 0) return {-kInf, kInf};
      if (is_whole(type)) return of_corners(a, b, [](double x, double y) { return std::trunc(x / y); });
      return of_corners(a, b, [](double x, double y) { return x / y; });
    default:  // kMod: the result has the sign of the first operand
      const double most = absolute(b).high - 1;
      return {a.low < 0 ? std::max(a.low, -most) : 0, a.high > 0 ? std::min(a.high, most) : 0};
  }
}

Range of_bits(Op op, Range a, Range b) {
  if (a.low < 0 || b.low < 0) return whole_range(Type::kI32);
  if (op == Op::kBitAnd) {
    if (a.constant() && b.constant())
      return {static_cast<double>(static_cast<std::uint32_t>(a.low) & static_cast<std::uint32_t>(b.low)),
              static_cast<double>(static_cast<std::uint32_t>(a.low) & static_cast<std::uint32_t>(b.low))};
    return {0, std::min(a.high, b.high)};
  }
  return {0, all_ones(std::max(a.high, b.high))};
}

Range of_truths(Op op, Range a, Range b) {
  if (op == Op::kBitAnd) return {std::min(a.low, b.low), std::min(a.high, b.high)};
  if (op == Op::kBitOr) return {std::max(a.low, b.low), std::max(a.high, b.high)};
  return kAnyBool;
}

Range of_shift(Op op, Range a, Range by) {
  const auto shifted = [&](double x, double k) {
    k = std::clamp(k, 0.0, 32.0);
    return op == Op::kShiftLeft ? std::ldexp(x, static_cast<int>(k))
                                : std::floor(std::ldexp(x, -static_cast<int>(k)));
  };
  return of_corners(a, by, shifted);
}

}  // namespace

Range whole_range(Type type) {
  switch (type) {
    case Type::kBool:
      return kAnyBool;
    case Type::kI32:
      return {-0x1p31, 0x1p31 - 1};
    case Type::kU32:
      return {0, 0x1p32 - 1};
    default:
      return {-kInf, kInf};
  }
}

Range joined(Range a, Range b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

Range of_comparison(Op op, Range a, Range b) {
  const bool below = a.high<b.low, above = a.low> b.high,
             same = a.constant() && b.constant() && a.low == b.low;
  const auto known = [](bool truth) { return truth ? Range{1, 1} : Range{0, 0}; };
  switch (op) {
    case Op::kLess:
      return below || a.low >= b.high ? known(below) : kAnyBool;
    case Op::kLessEqual:
      return above || a.high <= b.low ? known(!above) : kAnyBool;
    case Op::kEqual:
    case Op::kNotEqual:
      return same || below || above ? known(same == (op == Op::kEqual)) : kAnyBool;
    default:
      return kAnyBool;
  }
}

// Each case bounds the exact result over all operands in the input ranges. The default is the whole range of the
// type.
Range range_of(Op op, Type type, const std::array<Range, 3>& in, unsigned index) {
  const auto& [a, b, c] = in;
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kMod:
      return rounded(arithmetic(op, type, a, b), type);
    case Op::kNeg:
      return {-a.high, -a.low};
    case Op::kLogicNot:
      return {1 - a.high, 1 - a.low};
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
      return type == Type::kBool ? of_truths(op, a, b) : of_bits(op, a, b);
    case Op::kShiftLeft:
    case Op::kShiftRight:
      return of_shift(op, a, b);
    case Op::kSelect:
      return a.constant() ? (a.low != 0 ? b : c) : joined(b, c);
    case Op::kAbs:
      return absolute(a);
    case Op::kMin:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case Op::kMax:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case Op::kClamp:
      return {std::clamp(a.low, b.low, std::max(b.low, c.low)), std::max(std::min(a.high, c.high), b.low)};
    case Op::kFloor:
      return {std::floor(a.low), std::floor(a.high)};
    case Op::kCeil:
      return {std::ceil(a.low), std::ceil(a.high)};
    case Op::kRound:
      return {std::nearbyint(a.low), std::nearbyint(a.high)};
    case Op::kSqrt:
      return rounded({std::sqrt(std::max(a.low, 0.0)), std::sqrt(std::max(a.high, 0.0))}, type);
    case Op::kDivide:
      if (b.low > 0 || b.high < 0) return joined(rounded(arithmetic(Op::kDiv, type, a, b), type), c);
      return whole_range(type);
    case Op::kCopysign:
      return {-absolute(a).high, absolute(a).high};
    case Op::kConvert:
      return type == Type::kF32 || type == Type::kF64 ? rounded(a, type)
                                                      : Range{std::trunc(a.low), std::trunc(a.high)};
    case Op::kHalf:
      return {0, 0xffff};
    case Op::kDraw:
    case Op::kSharedDraw:
      return {0, std::ldexp(1.0, static_cast<int>(index)) - 1};
    case Op::kLevel: {
      const double most = std::ldexp(1.0, static_cast<int>(index) - 1) - 1;
      return {-most, most};
    }
    case Op::kSum:
      return {a.low >= 0 ? 0 : -kInf, a.high <= 0 ? 0 : kInf};
    case Op::kMean:
    case Op::kLargest:
    case Op::kSmallest:
      return joined(a, {0, 0});
    case Op::kThreshold:
      return {0x1p-149, std::numeric_limits<float>::max()};
    case Op::kN:
    case Op::kLength:
    case Op::kCount:
      return {0, 0x1p32 - 2};
    default:
      return whole_range(type);
  }
}

}  // namespace tithe::lang
