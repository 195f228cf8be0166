// SPDX-License-Identifier: Apache-2.0
// Renders a Figure as SVG.
#include "figure.h"

#include <fmt/format.h>

#include <cmath>

namespace tithe::cli {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::vector<double> round_ticks(double most) {
  if (!(most > 0)) return {0, 1};
  const double rough = most / 5, ten = std::pow(10, std::floor(std::log10(rough)));
  const double step = rough <= ten ? ten : rough <= 2 * ten ? 2 * ten : rough <= 5 * ten ? 5 * ten : 10 * ten;
  std::vector<double> out{0};
  while (out.back() < most) out.push_back(step * static_cast<double>(out.size()));
  return out;
}

std::string to_svg(const Figure& figure) {
  std::string out = fmt::format(
      "<svg width='{0}' height='{1}' viewBox='0 0 {0} {1}' role='img' font-family='sans-serif' "
      "font-size='{2}'>\n",
      figure.width, figure.height, kFontSize);
  for (const Figure::Line& l : figure.lines) {
    std::string points;
    for (const auto& [x, y] : l.points) points += fmt::format("{:.1f},{:.1f} ", x, y);
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='{}'/>\n", points, l.color,
                       l.width);
    if (!l.dots) continue;
    for (const auto& [x, y] : l.points)
      out +=
          fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' fill='{}'/>\n", x, y, 1.5 * l.width, l.color);
  }
  for (const Figure::Bar& b : figure.bars)
    out += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>\n", b.x, b.y,
                       b.width, b.height, b.color);
  for (const Figure::Text& t : figure.texts) {
    const char* anchor = t.anchor == Figure::Anchor::kStart    ? "start"
                         : t.anchor == Figure::Anchor::kMiddle ? "middle"
                                                               : "end";
    const std::string turn = t.upwards ? fmt::format(" transform='rotate(-90 {:.1f} {:.1f})'", t.x, t.y) : "";
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}' fill='{}'{}>{}</text>\n", t.x, t.y,
                       anchor, t.color, turn, escaped(t.text));
  }
  return out + "</svg>\n";
}

}  // namespace tithe::cli
