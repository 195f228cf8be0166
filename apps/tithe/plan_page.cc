// SPDX-License-Identifier: Apache-2.0
#include "plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tithe::cli {
namespace {

using sim::Seconds;

constexpr double kWidth = 1000, kLeft = 90, kRow = 26, kGap = 8;

struct Row {
  std::string_view name, color;
};
constexpr std::array<Row, 4> kRows{
    {{"computing", "#9aa5ad"}, {"encoding", "#c8553d"}, {"messages", "#1b6ca8"}, {"merging", "#3d8c5f"}}};

std::size_t row_of(engine::StepKind kind) {
  switch (kind) {
    case engine::StepKind::kSend:
    case engine::StepKind::kRecv:
      return 2;
    case engine::StepKind::kMerge:
    case engine::StepKind::kStore:
    case engine::StepKind::kCheck:
      return 3;
    default:
      return 1;
  }
}

// A bar from begin to end; those of a row that overlap lie on each other, so a row shows when anything of it ran.
std::string bars(const planner::Question& q, const sim::Outcome& out, Seconds longest) {
  const auto x = [&](Seconds t) { return kLeft + t / longest * (kWidth - kLeft - 20); };
  std::string svg;
  const auto bar = [&](std::size_t row, Seconds begin, Seconds end) {
    svg += fmt::format(
        "<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='{}' fill='{}' fill-opacity='0.6'/>\n", x(begin),
        static_cast<double>(row) * (kRow + kGap), std::max(0.2, x(end) - x(begin)), kRow, kRows[row].color);
  };
  bar(0, 0, q.job.compute);
  for (std::size_t r = 0; r < kRows.size(); ++r)
    svg += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>\n", kLeft - 8,
                       static_cast<double>(r) * (kRow + kGap) + kRow * 0.65, kRows[r].name);
  // Pieces that nearly touch are one bar: a page of a large model stays small.
  const Seconds touch = longest / 2000;
  for (std::size_t row = 1; row < kRows.size(); ++row) {
    std::vector<std::pair<Seconds, Seconds>> spans;
    for (const sim::Event& e : out.events) {
      if (e.rank != 0) continue;
      const engine::Step& step = out.step_of(e);
      if (row_of(step.kind) == row) spans.emplace_back(e.begin, e.end);
    }
    std::sort(spans.begin(), spans.end());
    for (std::size_t k = 0; k < spans.size();) {
      const Seconds begin = spans[k].first;
      Seconds end = spans[k].second;
      for (++k; k < spans.size() && spans[k].first <= end + touch; ++k) end = std::max(end, spans[k].second);
      bar(row, begin, end);
    }
  }
  svg +=
      fmt::format("<line x1='{0:.2f}' x2='{0:.2f}' y1='0' y2='{1}' stroke='#333' stroke-dasharray='3 3'/>\n",
                  x(out.step), static_cast<double>(kRows.size()) * (kRow + kGap));
  return svg;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

Result<std::string> plan_page(const planner::Question& question, const planner::Planned& planned) {
  const double height = static_cast<double>(kRows.size()) * (kRow + kGap);
  std::string body;
  struct Step {
    std::string title;
    const std::vector<Rule>* rules;
  };
  const Seconds longest = std::max(planned.outcome.step, planned.bf16.step);
  for (const Step& s : {Step{fmt::format("planned by {}", planned.policy), &planned.rules},
                        Step{planned.bf16.name + ", the best bf16 here", &planned.bf16.rules}}) {
    const Result<sim::Outcome> out = planner::simulate(question, *s.rules, true);
    if (!out.ok()) return out.status();
    body += fmt::format(
        "<h2>{}: {:.3f} ms, {:.3f} MB sent</h2>\n<svg width='{}' height='{}' role='img'>{}</svg>\n",
        escaped(s.title), out->step * 1e3, out->bytes[0] / 1e6, kWidth, height,
        bars(question, *out, longest));
  }
  std::string rows;
  for (const Rule& r : planned.rules)
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(r.match),
                    escaped(size_text(r)), escaped(to_string(*r.codec)), escaped(r.strategy), r.part_values);
  return fmt::format(
      "<!doctype html><meta charset='utf-8'><title>tithe plan</title>\n<style>body{{font:14px "
      "system-ui,sans-serif;margin:2em}}"
      "text{{font-size:12px}}td,th{{padding:2px 10px;text-align:left}}h2{{font-size:16px}}</style>\n<h1>A "
      "step of rank 0</h1>\n"
      "<p>{}. Both pictures have the same scale; the dashed line is the end of the step.</p>\n{}"
      "<table><tr><th>tensors</th><th>values</th><th>codec</th><th>by</th><th>parts "
      "of</th></tr>\n{}</table>\n",
      escaped(planned.verdict), body, rows);
}

}  // namespace tithe::cli
