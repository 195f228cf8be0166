// SPDX-License-Identifier: Apache-2.0
#include "lang/front/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMaxShown = 100;  // of a line

struct Line {
  std::size_t number;  // from 1
  std::size_t first;
  std::size_t end;
};

Line line_of(std::string_view text, std::size_t at) {
  at = std::min(at, text.size());
  const std::string_view before = text.substr(0, at);
  const std::size_t last = before.rfind('\n');
  const std::size_t first = last == std::string_view::npos ? 0 : last + 1;
  return {.number = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1,
          .first = first,
          .end = std::min(text.find('\n', first), text.size())};
}

std::string shown(const Source& source, const Problem& problem) {
  const Line line = line_of(source.text, problem.at.first);
  // A long line is cut around the caret.
  std::size_t first = line.first;
  if (problem.at.first - first > kMaxShown / 2) first = problem.at.first - kMaxShown / 2;
  const std::size_t end = std::min(line.end, first + kMaxShown);
  const std::string before = printable(source.of({first, std::min(problem.at.first, end)}), kMaxShown);
  const std::string rest = printable(source.of({std::min(problem.at.first, end), end}), kMaxShown);
  const std::size_t width =
      std::max<std::size_t>(1, std::min(problem.at.end, end) - std::min(problem.at.first, end));
  std::string out = fmt::format("{}:{}:{}: {}\n", source.name, line.number, problem.at.first - line.first + 1,
                                problem.what);
  out += fmt::format("{:5} | {}{}\n", line.number, before, rest);
  out += fmt::format("      | {}{}\n", std::string(before.size(), ' '), std::string(width, '^'));
  if (!problem.help.empty()) out += fmt::format("      = {}\n", problem.help);
  if (problem.called.end == 0) return out;
  const Line call = line_of(source.text, problem.called.first);
  return out + fmt::format("      = called from {}:{}: {}\n", call.number,
                           problem.called.first - call.first + 1,
                           printable(source.of(problem.called), kMaxShown));
}

}  // namespace

void Problems::add(Span at, std::string what, std::string help) {
  if (all_.size() >= kMaxProblems) return;
  for (const Problem& p : all_)
    if (p.at.first == at.first) return;
  all_.push_back({at, std::move(what), std::move(help)});
}

void Problems::called_from(std::size_t first, Span call) {
  for (std::size_t k = first; k < all_.size(); ++k) all_[k].called = call;
}

std::string Problems::text(const Source& source) const {
  std::vector<Problem> sorted = all_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Problem& a, const Problem& b) { return a.at.first < b.at.first; });
  std::string out;
  for (const Problem& p : sorted) out += shown(source, p);
  return out;
}

}  // namespace tithe::lang
