// SPDX-License-Identifier: Apache-2.0
// Draws rank 0's step as SVG: one row per kind of work, one bar per bucket and interval.
#include "plan_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "figure.h"

namespace tithe::cli {
namespace {

using sim::Seconds;

constexpr double kWidth = 1000, kLeft = 90, kRight = 60, kRow = 26, kGap = 8, kAxis = 40;
constexpr double kLetter = 6.2;  // approximate width of a character

struct Row {
  std::string_view name, color, doc;
};
constexpr std::array<Row, 4> kRows{{{"computing", "#9aa5ad", "forward and backward"},
                                    {"encoding", "#c8553d", "gradients to payloads"},
                                    {"messages", "#1b6ca8", "frames on their way to and from rank 0"},
                                    {"merging", "#3d8c5f", "payloads to sums and results"}}};
constexpr double kDown = kRows.size() * (kRow + kGap);

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

double ms(Seconds s) { return s * 1e3; }

Seconds ready_of(const planner::Job& job, std::size_t bucket) {
  return job.tensors[job.bucket_ends[bucket] - 1].ready;
}

// A picture under construction.
class Timeline {
 public:
  explicit Timeline(double last) : last_(last) {}

  double x(Seconds t) const { return kLeft + ms(t) / last_ * (kWidth - kLeft - kRight); }
  static double y(std::size_t row) { return static_cast<double>(row) * (kRow + kGap); }

  // Adjacent bars of a row belong to different buckets: one is dark, the next one light. The number is shown if it
  // fits.
  void bar(std::size_t row, std::size_t bucket, Seconds begin, Seconds end, std::string_view doing) {
    const double from = x(begin), width = std::max(0.2, x(end) - from);
    svg_ += fmt::format(
        "<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='{}' fill='{}' fill-opacity='{}'><title>{}bucket "
        "{}: "
        "{:.3f} to {:.3f} ms</title></rect>\n",
        from, y(row), width, kRow, kRows[row].color, bucket % 2 == 0 ? "0.75" : "0.45", doing, bucket + 1,
        ms(begin), ms(end));
    const std::string number = fmt::to_string(bucket + 1);
    const double needs = kLetter * static_cast<double>(number.size()) + 4, middle = from + width / 2;
    if (width < needs || middle - needs / 2 < free_from_[row]) return;
    text(middle, y(row) + kRow * 0.65, "middle", number);
    free_from_[row] = middle + needs / 2 + kLetter;
  }
  void text(double at_x, double at_y, std::string_view anchor, std::string_view words) {
    texts_ += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", at_x, at_y, anchor,
                          escaped(words));
  }
  void line(double at_x, double to_y, std::string_view stroke) {
    svg_ += fmt::format("<line x1='{0:.2f}' x2='{0:.2f}' y1='0' y2='{1}' {2}/>\n", at_x, to_y, stroke);
  }
  std::string done() const {
    return fmt::format("<svg width='{0}' height='{1}' viewBox='0 0 {0} {1}' role='img'>\n{2}</svg>\n", kWidth,
                       kDown + kAxis, svg_ + texts_);
  }

 private:
  double last_;  // end of the axis, ms
  std::string svg_;
  std::string texts_;                             // drawn above all bars
  std::array<double, kRows.size()> free_from_{};  // end of the last label in each row
};

// The intervals in which a row works on a bucket, in order. Intervals that nearly touch are merged, to keep the page of
// a large model small.
struct Span {
  Seconds begin, end;
  std::size_t bucket;
};
std::vector<Span> spans_of(const sim::Outcome& out, std::size_t row, Seconds touch) {
  std::vector<Span> all;
  for (const sim::Event& e : out.events)
    if (e.rank == 0 && row_of(out.step_of(e).kind) == row)
      all.push_back({e.begin, e.end, static_cast<std::size_t>(e.bucket)});
  std::ranges::sort(all, {}, [](const Span& s) { return std::pair(s.bucket, s.begin); });
  std::vector<Span> joined;
  for (const Span& s : all) {
    if (!joined.empty() && joined.back().bucket == s.bucket && s.begin <= joined.back().end + touch)
      joined.back().end = std::max(joined.back().end, s.end);
    else
      joined.push_back(s);
  }
  std::ranges::sort(joined, {}, &Span::begin);
  return joined;
}

}  // namespace

std::string timeline_svg(const planner::PlanQuery& q, const sim::Outcome& out, Seconds longest) {
  const std::vector<double> ticks = round_ticks(ms(longest));
  Timeline t(ticks.back());
  for (const double tick : ticks) {
    t.line(t.x(tick / 1e3), kDown, "stroke='#dddddd'");
    t.text(t.x(tick / 1e3), kDown + 14, "middle", fmt::format("{:g}", tick));
  }
  t.text((kLeft + kWidth - kRight) / 2, kDown + 32, "middle", "ms since the step began");
  for (std::size_t r = 0; r < kRows.size(); ++r)
    t.text(kLeft - 8, Timeline::y(r) + kRow * 0.65, "end", kRows[r].name);
  // A bucket's share of the computation ends when its last gradient is ready; forward is part of the first one.
  Seconds from = 0;
  for (std::size_t b = 0; b < q.job.bucket_ends.size(); ++b) {
    const Seconds to = b + 1 == q.job.bucket_ends.size() ? q.job.compute : ready_of(q.job, b);
    t.bar(0, b, from, to, b == 0 ? "forward, and backward until " : "backward until ");
    from = to;
  }
  constexpr double kAcross = 2000;
  for (std::size_t row = 1; row < kRows.size(); ++row)
    for (const Span& s : spans_of(out, row, longest / kAcross))
      t.bar(row, s.bucket, s.begin, s.end, fmt::format("{} of ", kRows[row].name));
  t.line(t.x(out.step), kDown, "stroke='#333' stroke-dasharray='3 3'");
  return t.done();
}

std::string timeline_legend() {
  std::string text;
  for (const Row& row : kRows)
    text += fmt::format("{}<b style='color:{}'>{}</b> ({})", text.empty() ? "" : ", ", row.color, row.name,
                        row.doc);
  return text;
}

std::string bucket_table(const planner::PlanQuery& q, const sim::Outcome& out) {
  const planner::Job& job = q.job;
  std::vector<Seconds> result(job.bucket_ends.size());
  for (const sim::Event& e : out.events)
    if (e.rank == 0)
      result[static_cast<std::size_t>(e.bucket)] =
          std::max(result[static_cast<std::size_t>(e.bucket)], e.end);
  std::string rows =
      "<tr><th>bucket</th><th>tensors</th><th>from</th><th>to</th><th>values</th><th>ready, "
      "ms</th><th>result, "
      "ms</th></tr>\n";
  std::size_t first = 0;
  for (std::size_t b = 0; b < job.bucket_ends.size(); ++b) {
    const std::size_t end = job.bucket_ends[b];
    std::size_t values = 0;
    for (std::size_t k = first; k < end; ++k) values += job.tensors[k].n;
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td></tr>\n",
        b + 1, end - first, escaped(job.tensors[first].key), escaped(job.tensors[end - 1].key), values,
        ms(ready_of(job, b)), ms(result[b]));
    first = end;
  }
  return rows;
}

}  // namespace tithe::cli
