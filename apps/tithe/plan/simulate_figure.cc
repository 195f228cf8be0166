// SPDX-License-Identifier: Apache-2.0
// The figures and pages of `tithe simulate`: curves of a sweep, and bars with the time of settings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "figure.h"
#include "simulate_setting.h"

namespace tithe::cli {
namespace {

constexpr std::string_view kColors[] = {"#1b6ca8", "#c8553d", "#3d8c5f", "#8a5fa8", "#b8892b", "#5f6b73"};
constexpr std::string_view kGrid = "#dddddd";
std::string color(std::size_t k) { return std::string(kColors[k % std::size(kColors)]); }

double to_ms(sim::Seconds s) { return s * 1e3; }

// The range of an axis; maps a value to its position, 0 to 1.
class Axis {
 public:
  Axis(double low, double high, bool log) : log_(log), low_(at(low)), high_(at(high)) {
    if (high_ <= low_) high_ = low_ + 1;
  }
  double operator()(double v) const { return (at(v) - low_) / (high_ - low_); }

 private:
  double at(double v) const { return log_ ? std::log10(v) : v; }
  bool log_;
  double low_, high_;
};

// Powers of ten from below `least` to above `most`.
std::vector<double> decades(double least, double most) {
  std::vector<double> out{std::pow(10, std::floor(std::log10(least)))};
  while (out.back() < most) out.push_back(10 * out.back());
  return out;
}

std::string page(const std::string& title, const std::string& about, const Figure& figure,
                 const std::string& table) {
  return fmt::format(
      "<!doctype html><meta charset='utf-8'><title>{0}</title>\n<style>body{{font:14px "
      "system-ui,sans-serif;margin:2em}}td,th{{padding:2px 10px;text-align:right;white-space:nowrap}}"
      "td:first-child{{text-align:left}}tr:nth-child(even){{background:#f4f4f4}}</style>\n"
      "<h1>{0}</h1>\n<p>{1}</p>\n{2}<table>{3}</table>\n",
      escaped(title), escaped(about), to_svg(figure), table);
}

Figure sweep_figure(const Sweep& sweep) {
  constexpr double kPlotLeft = 80, kPlotRight = 220, kPlotTop = 24, kPlotBottom = 56, kPlotAcross = 520,
                   kPlotDown = 360;
  double least = sim::kNever, most = 0;
  for (const auto& row : sweep.answers)
    for (const Answer& a : row) {
      least = std::min(least, to_ms(a.outcome.step));
      most = std::max(most, to_ms(a.outcome.step));
    }
  constexpr double kManyTimes = 20;  // a larger ratio uses a logarithmic axis
  const bool log = most > kManyTimes * least;
  const std::vector<double> ticks = log ? decades(least, most) : round_ticks(most);
  const Axis across(sweep.at.front(), sweep.at.back(), true), up(ticks.front(), ticks.back(), log);
  const auto px = [&](double v) { return kPlotLeft + (sweep.at.size() > 1 ? across(v) : 0.5) * kPlotAcross; };
  const auto py = [&](double v) { return kPlotTop + (1 - up(v)) * kPlotDown; };

  Figure f{.width = kPlotLeft + kPlotAcross + kPlotRight, .height = kPlotTop + kPlotDown + kPlotBottom};
  for (const double t : ticks) {
    f.lines.push_back({{{kPlotLeft, py(t)}, {kPlotLeft + kPlotAcross, py(t)}}, std::string(kGrid), 1, false});
    f.texts.push_back({kPlotLeft - 8, py(t) + 4, fmt::format("{:g}", t), Figure::Anchor::kEnd});
  }
  for (const double v : sweep.at)
    f.texts.push_back({px(v), kPlotTop + kPlotDown + 18, fmt::format("{:g}", v), Figure::Anchor::kMiddle});
  for (std::size_t s = 0; s < sweep.answers[0].size(); ++s) {
    Figure::Line curve{{}, color(s), 2, true};
    for (std::size_t k = 0; k < sweep.at.size(); ++k)
      curve.points.emplace_back(px(sweep.at[k]), py(to_ms(sweep.answers[k][s].outcome.step)));
    f.lines.push_back(std::move(curve));
    const double y = kPlotTop + 12 + 20 * static_cast<double>(s);
    f.bars.push_back({kPlotLeft + kPlotAcross + 16, y - 9, 10, 10, color(s)});
    f.texts.push_back({kPlotLeft + kPlotAcross + 32, y, sweep.answers[0][s].setting.label});
  }
  f.texts.push_back(
      {kPlotLeft + kPlotAcross / 2, kPlotTop + kPlotDown + 42, sweep.unit, Figure::Anchor::kMiddle});
  f.texts.push_back({22, kPlotTop + kPlotDown / 2, "step, ms", Figure::Anchor::kMiddle, "#222222", true});
  return f;
}

// Each setting's step as computation and exposed time; below it, concurrent costs.
Figure compare_figure(const std::vector<Answer>& answers) {
  constexpr double kPlotLeft = 230, kPlotRight = 110, kPlotTop = 36, kPlotBottom = 30, kPlotAcross = 520,
                   kThick = 16, kThin = 6, kEach = 62;
  struct CostStage {
    std::string_view name, color;
    sim::Seconds sim::Outcome::*time;
  };
  constexpr std::string_view kCompute = "#b9c2c9", kExposed = "#c8553d";
  constexpr CostStage kStages[] = {{"busiest link", "#1b6ca8", &sim::Outcome::max_link_busy},
                                   {"encode", "#3d8c5f", &sim::Outcome::encoded},
                                   {"merge, store", "#b8892b", &sim::Outcome::merged}};
  double most = 0;
  for (const Answer& a : answers)
    for (const double t : {a.outcome.step, a.outcome.max_link_busy, a.outcome.encoded, a.outcome.merged})
      most = std::max(most, to_ms(t));
  const std::vector<double> ticks = round_ticks(most);
  const Axis across(0, ticks.back(), false);
  const auto length = [&](double v) { return across(v) * kPlotAcross; };
  const double down = kEach * static_cast<double>(answers.size());
  Figure f{.width = kPlotLeft + kPlotAcross + kPlotRight, .height = kPlotTop + down + kPlotBottom};
  for (const double t : ticks) {
    const double x = kPlotLeft + length(t);
    f.lines.push_back({{{x, kPlotTop}, {x, kPlotTop + down}}, std::string(kGrid), 1, false});
    f.texts.push_back({x, kPlotTop + down + 18, fmt::format("{:g}", t) + (t == ticks.back() ? " ms" : ""),
                       Figure::Anchor::kMiddle});
  }
  double x = kPlotLeft;
  const auto legend = [&](std::string_view name, std::string_view of) {
    f.bars.push_back({x, 8, 10, 10, std::string(of)});
    f.texts.push_back({x + 15, 17, std::string(name)});
    x += 40 + 6.2 * static_cast<double>(name.size());
  };
  legend("computing", kCompute);
  legend("exposed", kExposed);
  for (const CostStage& s : kStages) legend(s.name, s.color);
  for (std::size_t k = 0; k < answers.size(); ++k) {
    const Answer& a = answers[k];
    double y = kPlotTop + kEach * static_cast<double>(k) + 8;
    const double computing = length(to_ms(a.outcome.step - a.outcome.exposed));
    f.texts.push_back({kPlotLeft - 12, y + 13, a.setting.label, Figure::Anchor::kEnd});
    f.texts.push_back({kPlotLeft + length(to_ms(a.outcome.step)) + 6, y + 13,
                       fmt::format("{:.1f} ms", to_ms(a.outcome.step))});
    f.bars.push_back({kPlotLeft, y, computing, kThick, std::string(kCompute)});
    f.bars.push_back(
        {kPlotLeft + computing, y, length(to_ms(a.outcome.exposed)), kThick, std::string(kExposed)});
    y += kThick + 3;
    for (const CostStage& s : kStages) {
      f.bars.push_back({kPlotLeft, y, length(to_ms(a.outcome.*s.time)), kThin, std::string(s.color)});
      y += kThin + 2;
    }
  }
  return f;
}

}  // namespace

std::string sweep_page(const std::string& title, const std::string& about, const Sweep& sweep) {
  std::string table = fmt::format("<tr><th>{}</th>", escaped(sweep.unit));
  for (const Answer& a : sweep.answers[0])
    table += fmt::format("<th>{}, ms</th><th>efficiency</th>", escaped(a.setting.label));
  table += "</tr>\n";
  for (std::size_t k = 0; k < sweep.at.size(); ++k) {
    table += fmt::format("<tr><td>{:g}</td>", sweep.at[k]);
    for (const Answer& a : sweep.answers[k])
      table += fmt::format("<td>{:.3f}</td><td>{:.0f} %</td>", to_ms(a.outcome.step), 100 * a.efficiency());
    table += "</tr>\n";
  }
  return page(title, about, sweep_figure(sweep), table);
}

std::string compare_page(const std::string& title, const std::string& about,
                         const std::vector<Answer>& answers) {
  std::string table =
      "<tr><th>setting</th><th>step, ms</th><th>8 of 10 "
      "between</th><th>computing</th><th>exposed</th><th>efficiency</th><th>sent, "
      "MB</th><th>encode, ms</th><th>merge, ms</th><th>link, ms</th><th>busiest link</th></tr>\n";
  for (const Answer& a : answers) {
    const auto [low, high] = band_ms(a);
    table += fmt::format(
        "<tr><td>{}</td><td>{:.3f}</td><td>{:.1f} to {:.1f}</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.1f} "
        "%</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.3f}</td><td>{}</td></tr>\n",
        escaped(a.setting.label), to_ms(a.outcome.step), low, high, to_ms(a.compute),
        to_ms(a.outcome.exposed), 100 * a.efficiency(),
        (a.outcome.bytes.empty() ? 0.0 : a.outcome.bytes[0]) / 1e6, to_ms(a.outcome.encoded),
        to_ms(a.outcome.merged), to_ms(a.outcome.max_link_busy), escaped(a.outcome.busiest));
  }
  return page(title, about, compare_figure(answers), table);
}

}  // namespace tithe::cli
