// SPDX-License-Identifier: Apache-2.0
// An operator is applied to whole arrays. compute() handles inputs and operators with state. All other operators are
// grouped by type of operand, in functions that return true if they have a case for the operator. Invariant: every
// result is defined: integers wrap around or stay within the checked range, and an integer division by 0 yields 0.
#include "lang/run/evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <type_traits>

#include "base/rng.h"
#include "codec/shared/common/block.h"
#include "lang/front/ranges.h"
#include "lang/run/half_bits.h"

namespace tithe::lang {

namespace {

using U = std::uint32_t;
using I = std::int32_t;

U draw(std::uint64_t key, std::size_t index, unsigned bits) {
  const auto i = static_cast<U>(index);
  if (bits <= 23) return draw_half(key, i, static_cast<int>(bits));
  if (bits == 24) return draw_high(key, i) >> 8;
  return draw32(key, i) >> (32 - bits);
}

// Float to integer: towards zero, limited to the range that the checker computed; NaN becomes the lower end.
template <typename To, typename From>
To whole(From v, Range range) {
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  const auto d = static_cast<double>(v);
  const double held = d > low ? (d < high ? d : high) : low;
  return static_cast<To>(held);
}

// Applies a function of one, two or three operands to arrays, element by element. Returns true, as does a function that
// has a case for the operator.
class Arrays {
 public:
  Arrays(const Registers& registers, const Node& node, int k, std::size_t count)
      : registers_(registers), node_(node), k_(k), count_(count) {}

  template <typename R, typename A, typename F>
  bool one(F f) const {
    const A* a = in<A>(0);
    R* out = registers_.of<R>(k_);
    for (std::size_t i = 0; i < count_; ++i) out[i] = f(a[i]);
    return true;
  }
  template <typename R, typename A, typename F>
  bool two(F f) const {
    const A *a = in<A>(0), *b = in<A>(1);
    R* out = registers_.of<R>(k_);
    for (std::size_t i = 0; i < count_; ++i) out[i] = f(a[i], b[i]);
    return true;
  }
  template <typename R, typename A, typename F>
  bool three(F f) const {
    const A *a = in<A>(0), *b = in<A>(1), *c = in<A>(2);
    R* out = registers_.of<R>(k_);
    for (std::size_t i = 0; i < count_; ++i) out[i] = f(a[i], b[i], c[i]);
    return true;
  }
  template <typename R>
  bool select() const {
    const U* c = in<U>(0);
    const R *a = in<R>(1), *b = in<R>(2);
    R* out = registers_.of<R>(k_);
    for (std::size_t i = 0; i < count_; ++i) out[i] = c[i] != 0 ? a[i] : b[i];
    return true;
  }
  template <typename F>
  void places(F f) const {
    U* out = registers_.of<U>(k_);
    for (std::size_t i = 0; i < count_; ++i) out[i] = f(i);
  }
  template <typename A>
  const A* in(std::size_t which) const {
    return registers_.of<A>(node_.in[which]);
  }

 private:
  const Registers& registers_;
  const Node& node_;
  int k_;
  std::size_t count_;
};

// The operators that both float types have in common with integers.
template <typename T>
bool numbers(const Node& node, const Arrays& on) {
  switch (node.op) {
    case Op::kAdd:
      return on.two<T, T>([](T a, T b) { return a + b; });
    case Op::kSub:
      return on.two<T, T>([](T a, T b) { return a - b; });
    case Op::kMul:
      return on.two<T, T>([](T a, T b) { return a * b; });
    case Op::kDiv:
      return on.two<T, T>([](T a, T b) { return a / b; });
    case Op::kDivide:
      return on.three<T, T>([](T a, T b, T c) { return b == 0 ? c : a / b; });
    case Op::kNeg:
      return on.one<T, T>([](T a) { return -a; });
    case Op::kAbs:
      return on.one<T, T>([](T a) { return std::fabs(a); });
    case Op::kFloor:
      return on.one<T, T>([](T a) { return std::floor(a); });
    case Op::kCeil:
      return on.one<T, T>([](T a) { return std::ceil(a); });
    case Op::kRound:
      return on.one<T, T>([](T a) { return std::nearbyint(a); });
    case Op::kSqrt:
      return on.one<T, T>([](T a) { return std::sqrt(a); });
    default:
      return false;
  }
}

template <typename T>
bool ordered(const Node& node, const Arrays& on) {
  switch (node.op) {
    case Op::kMin:
      return on.two<T, T>([](T a, T b) { return b < a ? b : a; });
    case Op::kMax:
      return on.two<T, T>([](T a, T b) { return a < b ? b : a; });
    case Op::kClamp:
      return on.three<T, T>([](T v, T low, T high) { return v < low ? low : high < v ? high : v; });
    case Op::kSelect:
      return on.select<T>();
    default:
      return false;
  }
}

template <typename T>
bool comparisons(Op op, const Arrays& on) {
  switch (op) {
    case Op::kLess:
      return on.two<U, T>([](T a, T b) { return U{a < b}; });
    case Op::kLessEqual:
      return on.two<U, T>([](T a, T b) { return U{a <= b}; });
    case Op::kEqual:
      return on.two<U, T>([](T a, T b) { return U{a == b}; });
    case Op::kNotEqual:
      return on.two<U, T>([](T a, T b) { return U{a != b}; });
    default:
      return false;
  }
}

template <typename T>
bool bit_work(const Node& node, const Arrays& on) {
  switch (node.op) {
    case Op::kBitAnd:
      return on.two<U, U>([](U a, U b) { return a & b; });
    case Op::kBitOr:
      return on.two<U, U>([](U a, U b) { return a | b; });
    case Op::kBitXor:
      return on.two<U, U>([](U a, U b) { return a ^ b; });
    case Op::kBitNot:
      return on.one<U, U>([](U a) { return ~a; });
    case Op::kLogicNot:
      return on.one<U, U>([](U a) { return a ^ 1U; });
    case Op::kShiftLeft:
      return on.two<U, U>([](U a, U k) { return k < 32 ? a << k : 0U; });
    case Op::kShiftRight:
      return on.two<T, T>([](T a, T k) {
        return static_cast<T>(static_cast<U>(k) < 32 ? a >> k : a < 0 ? -1 : 0);
      });
    default:
      return false;
  }
}

// i32 arithmetic in 64 bits, wrapped to 32 in two's complement; the checker rejects programs whose i32 could overflow.
// Division by zero yields 0.
template <typename T>
bool whole_numbers(const Node& node, const Arrays& on) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, T>;
  switch (node.op) {
    case Op::kAdd:
      return on.two<T, T>([](Wide a, Wide b) { return static_cast<T>(a + b); });
    case Op::kSub:
      return on.two<T, T>([](Wide a, Wide b) { return static_cast<T>(a - b); });
    case Op::kMul:
      return on.two<T, T>([](Wide a, Wide b) { return static_cast<T>(a * b); });
    case Op::kDiv:
      return on.two<T, T>([](Wide a, Wide b) { return b == 0 ? T{0} : static_cast<T>(a / b); });
    case Op::kMod:
      return on.two<T, T>([](Wide a, Wide b) { return b == 0 ? T{0} : static_cast<T>(a % b); });
    case Op::kDivide:
      return on.three<T, T>([](Wide a, Wide b, T c) { return b == 0 ? c : static_cast<T>(a / b); });
    case Op::kNeg:
      return on.one<T, T>([](Wide a) { return static_cast<T>(-a); });
    case Op::kAbs:
      return on.one<T, T>([](std::int64_t a) { return static_cast<T>(std::abs(a)); });
    default:
      return bit_work<T>(node, on) || ordered<T>(node, on);
  }
}

// Operators that treat floats as their bits.
bool float_bits(Op op, const Arrays& on) {
  switch (op) {
    case Op::kSignbit:
      return on.one<U, U>([](U v) { return v >> 31; });
    case Op::kCopysign:
      return on.two<U, U>([](U a, U b) { return (a & 0x7fffffffU) | (b & 0x80000000U); });
    case Op::kBits:
    case Op::kFloat:
      return on.one<U, U>([](U v) { return v; });
    case Op::kHalf:
      return on.one<U, U>([](U v) { return half_bits(v); });
    case Op::kFromHalf:
      return on.one<U, U>([](U v) { return from_half_bits(v); });
    default:
      return false;
  }
}

void convert(const Node& node, Type from, const Arrays& on) {
  by_type(from, [&]<typename From>(From) {
    by_type(node.type, [&]<typename To>(To) {
      if constexpr (std::is_floating_point_v<To>)
        on.one<To, From>([](From v) { return static_cast<To>(v); });
      else
        on.one<To, From>([&](From v) { return whole<To>(v, node.range); });
    });
  });
}

}  // namespace

void Registers::compute(int k, const Given& given, std::size_t count) const {
  const Node& n = node(k);
  const Arrays on(*this, n, k, count);
  const auto number = [&](double v) {
    by_type(n.type, [&]<typename T>(T) { *of<T>(k) = static_cast<T>(v); });
  };
  switch (n.op) {
    case Op::kConst:
      return number(n.number);
    case Op::kParam:
      return number((*given.settings)[n.index]);
    case Op::kN:
      return number(static_cast<double>(given.n));
    case Op::kLength:
      return number(static_cast<double>(given.length));
    case Op::kAdded:
      return number(given.added[n.index]);
    case Op::kTaken:
    case Op::kGrad:
    case Op::kItem:
    case Op::kBefore:
    case Op::kArgument:
      return;  // already filled
    // The sum of all previous runs is stored behind this run's values.
    case Op::kScan: {
      const U* v = on.in<U>(0);
      U* out = of<U>(k);
      U sum = given.at == 0 ? 0 : out[kRun];
      for (std::size_t i = 0; i < count; ++i) out[i] = sum += v[i];
      out[kRun] = sum;
      return;
    }
    case Op::kSums:
      std::inclusive_scan(on.in<U>(0), on.in<U>(0) + n.index, of<U>(k));
      return;
    case Op::kRank:
      return on.places([&](std::size_t i) { return on.in<U>(0)[given.at + i]; });
    case Op::kEntry: {
      const Node& table = node(n.in[0]);
      const std::size_t entries = table.op == Op::kSort ? given.length : table.index;
      const U *from = on.in<U>(0), *index = on.in<U>(1);
      return on.places([&](std::size_t i) { return index[i] < entries ? from[index[i]] : 0U; });
    }
    case Op::kDraw:
      return on.places([&](std::size_t i) { return draw(given.key, given.first + i, n.index); });
    case Op::kSharedDraw:
      return on.places([&](std::size_t i) { return draw(given.shared_key, given.first + i, n.index); });
    case Op::kLevel: {
      const float* v = on.in<float>(0);
      const float scale = *on.in<float>(1);
      const block::Steps steps(scale, (1U << (n.index - 1)) - 1, n.index);
      return on.places([&](std::size_t i) {
        const float held = v[i] < -scale ? -scale : scale < v[i] ? scale : v[i];
        if (!(std::fabs(held) <= scale)) return U{0};  // NaN, or no scale
        const U random = draw_half(given.key, static_cast<U>(given.first + i), steps.fraction);
        return static_cast<U>(steps.rounded(held, random));
      });
    }
    case Op::kConvert:
      return convert(n, node(n.in[0]).type, on);
    default:
      break;
  }
  const auto compare = [&]<typename T>(T) { return comparisons<T>(n.op, on); };
  [[maybe_unused]] const bool done = float_bits(n.op, on)   ? true
                                     : compares(n.op)       ? by_type(node(n.in[0]).type, compare)
                                     : n.type == Type::kF32 ? numbers<float>(n, on) || ordered<float>(n, on)
                                     : n.type == Type::kF64 ? numbers<double>(n, on) || ordered<double>(n, on)
                                     : n.type == Type::kI32 ? whole_numbers<I>(n, on)
                                                            : whole_numbers<U>(n, on);
  TITHE_ASSERT(done);
}

void Registers::compute_values(std::span<const int> nodes, const Given& given, std::size_t count) const {
  for (const int k : nodes) compute(k, given, count);
}

void Registers::compute_once(const Nodes& nodes, const Given& given, bool fills) const {
  for (const int k : nodes) {
    compute(k, given, 1);
    if (fills && schedule_->filled[static_cast<std::size_t>(k)]) fill(k);
  }
}

void Registers::fill(int k, std::size_t count) const {
  by_type(node(k).type, [&]<typename T>(T) { std::fill_n(of<T>(k), count, *of<T>(k)); });
}

}  // namespace tithe::lang
