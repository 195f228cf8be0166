// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/emit_bounds.h"

#include <fmt/format.h>

#include <cstdint>

namespace tithe::lang {

namespace {

// An upper bound for this integer.
std::string largest_whole(const Checked& program, const NodeText& text, int k) {
  const Node& n = program.node(k);
  if (n.stage != Stage::kValue) return fmt::format("uint64_t({})", text.number(k));
  if (n.op == Op::kAdd)
    return fmt::format("({} + {})", largest_whole(program, text, n.in[0]),
                       largest_whole(program, text, n.in[1]));
  return fmt::format("{}ULL", static_cast<std::uint64_t>(n.range.high));
}

// An upper bound for the lower 31 bits of a u32: the magnitude of a float.
std::string largest_size(const Checked& program, const NodeText& text, int k) {
  const Node& n = program.node(k);
  constexpr std::uint64_t kSize = 0x7fffffff;
  if (n.type != Type::kU32) return {};
  const auto [a, b, c] = n.in;
  if (n.stage == Stage::kValue && (n.op == Op::kBitOr || n.op == Op::kSelect)) {
    const std::string one = largest_size(program, text, n.op == Op::kSelect ? c : a),
                      other = largest_size(program, text, b);
    return one.empty() || other.empty() ? "" : fmt::format("({} + {})", one, other);
  }
  if (n.op == Op::kBitAnd && program.node(b).op == Op::kConst)
    return fmt::format("{}ULL", static_cast<std::uint64_t>(program.node(b).number) & kSize);
  if (n.op == Op::kShiftLeft && program.node(b).op == Op::kConst)
    return fmt::format("({} << {})", largest_whole(program, text, a), program.node(b).number);
  return largest_whole(program, text, k);
}

}  // namespace

std::string largest_float(const Checked& program, const NodeText& text, int k) {
  const Node& n = program.node(k);
  if (n.stage != Stage::kValue) return fmt::format("abs_({})", text.number(k));
  if (n.op == Op::kFloat) {
    const std::string size = largest_size(program, text, n.in[0]);
    return size.empty() ? "" : fmt::format("float_of_size({})", size);
  }
  if (n.op == Op::kNeg || n.op == Op::kAbs || n.op == Op::kCopysign)
    return largest_float(program, text, n.in[0]);
  if (n.op != Op::kSelect) return {};
  const std::string one = largest_float(program, text, n.in[1]),
                    other = largest_float(program, text, n.in[2]);
  return one.empty() || other.empty() ? "" : fmt::format("{} + {}", one, other);
}

}  // namespace tithe::lang
