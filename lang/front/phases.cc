// SPDX-License-Identifier: Apache-2.0
#include "lang/front/phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"

namespace tithe::lang {

namespace {

struct Row {
  std::string_view name;
  Law law;
  bool before;  // allowed before another phase
  bool last;    // allowed in the last phase
};
constexpr Row kRows[] = {{"max", Law::kMax, true, false},
                         {"leader", Law::kLeader, true, false},
                         {"sum", Law::kSum, true, true},
                         {"decode", Law::kDecode, false, true}};

const Row* row_of(std::string_view name) {
  const Row* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::string names(bool last) {
  std::string all;
  for (const Row& row : kRows)
    if (last ? row.last : row.before) all += fmt::format("{}{}", all.empty() ? "" : ", ", row.name);
  return all;
}

// Decides whether a node is a linear function of the received sums: 0 if all sums are 0, and additive.
class LinearInSums {
 public:
  explicit LinearInSums(const Checked& program) : program_(program), sums_(program.nodes.size()) {
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      const Node& node = program.nodes[k];
      sums_[k] =
          node.op == Op::kItem || (node.op == Op::kAdded && node.decode) ||
          std::any_of(node.in.begin(), node.in.end(), [&](int from) { return from != kNone && reads(from); });
    }
  }

  // Both the fields and the rank count are sums over ranks, so the value that Sending::sum_of() computes is linear
  // too.
  bool is_linear(int k) const {
    const Node& node = program_.node(k);
    if (!reads(k)) return node.range.low == 0 && node.range.high == 0;
    const auto [a, b, c] = node.in;
    switch (node.op) {
      case Op::kItem:
      case Op::kAdded:
        return true;
      case Op::kConvert:
        return (is_float(node.type) || is_whole(program_.node(a).type)) && is_linear(a);
      case Op::kNeg:
        return is_linear(a);
      case Op::kAdd:
      case Op::kSub:
        return is_linear(a) && is_linear(b);
      case Op::kMul:
        return (is_linear(a) && !reads(b)) || (is_linear(b) && !reads(a));
      case Op::kDiv:
        return is_float(node.type) && is_linear(a) && !reads(b);
      case Op::kDivide:
        return is_float(node.type) && is_linear(a) && !reads(b) && is_linear(c);
      case Op::kSelect:
        return !reads(a) && is_linear(b) && is_linear(c);
      default:
        return false;
    }
  }

 private:
  bool reads(int k) const { return sums_[static_cast<std::size_t>(k)]; }

  const Checked& program_;
  std::vector<bool> sums_;
};

}  // namespace

Law law_of(const File& file, std::size_t phase) {
  const Row* row = phase < file.phases.size() ? row_of(file.phases[phase].law.text) : nullptr;
  return row == nullptr ? Law::kDecode : row->law;
}

void check_phases(const File& file, Problems& problems) {
  for (std::size_t p = 0; p < file.phases.size(); ++p) {
    const PhaseText& phase = file.phases[p];
    if (!phase.named()) continue;
    const bool last = p + 1 == file.phases.size();
    const Row* row = row_of(phase.law.text);
    if (p == kMaxPhases)
      problems.add(phase.name.at, fmt::format("too many phases: a codec has at most {}", kMaxPhases));
    if (row == nullptr) {
      std::vector<std::string_view> known;
      for (const Row& r : kRows) known.push_back(r.name);
      const std::string_view near = nearest_name(phase.law.text, known);
      problems.add(phase.law.at, fmt::format("unknown law '{}'", phase.law.text),
                   near.empty() ? fmt::format("laws are {}; of the last phase {}", names(false), names(true))
                                : fmt::format("did you mean '{}'?", near));
    } else if (!(last ? row->last : row->before)) {
      problems.add(phase.law.at,
                   fmt::format("{} cannot combine by {}", last ? "the last phase" : "a phase before another",
                               phase.law.text),
                   "by " + names(last));
    }
  }
}

bool is_multiple(const Checked& program, int k) { return LinearInSums(program).is_linear(k); }

}  // namespace tithe::lang
