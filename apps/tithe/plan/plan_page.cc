// SPDX-License-Identifier: Apache-2.0
// The HTML page of `tithe plan --html`: the timelines of the plan and of the best bf16 on one time scale, then the
// rules and the buckets.
#include "plan_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "figure.h"
#include "plan_timeline.h"

namespace tithe::cli {

using sim::Seconds;

Result<std::string> plan_page(const std::string& title, const planner::PlanQuery& query,
                              const planner::Planned& planned, const std::string& why) {
  std::string body, buckets;
  struct Step {
    std::string title;
    const std::vector<Rule>* rules;
  };
  const Seconds longest = std::max(planned.outcome.step, planned.bf16.step);
  for (const Step& s : {Step{fmt::format("planned by {}", planned.policy), &planned.rules},
                        Step{planned.bf16.name + ", the best bf16 here", &planned.bf16.rules}}) {
    if (s.rules == &planned.bf16.rules && planned.bf16.on_devices) continue;  // no session can run it
    const Result<sim::Outcome> out = planner::simulate(query, *s.rules, true);
    if (!out.ok()) return out.status();
    body += fmt::format("<h2>{}: {:.3f} ms, {:.3f} MB sent</h2>\n{}", escaped(s.title), out->step * 1e3,
                        out->bytes[0] / 1e6, timeline_svg(query, *out, longest));
    if (s.rules == &planned.rules) buckets = bucket_table(query, *out);
  }
  std::string rows;
  for (const Rule& r : planned.rules)
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(r.match),
                    escaped(size_text(r)), escaped(to_string(*r.codec)), escaped(r.strategy), r.part_values);
  return fmt::format(
      "<!doctype html><meta charset='utf-8'><title>tithe plan: {0}</title>\n<style>body{{font:14px "
      "system-ui,sans-serif;margin:2em}}text{{font-size:12px}}td,th{{padding:2px 10px;text-align:left}}"
      "h2{{font-size:16px}}</style>\n<h1>{0}: a step of rank 0</h1>\n"
      "<p>{1}.</p>\n<p>Rows: {5}. A bar is one bucket at work, and its number is the bucket's, in the order "
      "in "
      "which buckets are handed over. Dark and light bars alternate from bucket to bucket, and mean nothing "
      "else. A pointer on a bar shows its times. Both pictures have the same scale; the dashed line is the "
      "end "
      "of the step.</p>\n{2}{6}<h2>What is sent as "
      "what</h2>\n<table><tr><th>tensors</th><th>values</th><th>codec</th><th>by</th><th>parts "
      "of</th></tr>\n{3}</table>\n<h2>Buckets, as planned</h2>\n<table>{4}</table>\n",
      escaped(title), escaped(planned.verdict), body, rows, buckets, timeline_legend(),
      why.empty() ? "" : fmt::format("<h2>Why</h2>\n<pre>{}</pre>\n", escaped(why)));
}

}  // namespace tithe::cli
