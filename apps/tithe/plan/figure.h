// SPDX-License-Identifier: Apache-2.0
#pragma once
// A figure of lines, bars and texts as SVG. The SVG is part of an HTML page and refers to nothing outside the page.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tithe::cli {

// Lengths are in pixels, from the upper left corner; colours as "#rrggbb".
struct Figure {
  enum class Anchor { kStart, kMiddle, kEnd };
  struct Line {
    std::vector<std::pair<double, double>> points;
    std::string color;
    double width = 1;
    bool dots = false;  // at its points
  };
  struct Bar {
    double x, y, width, height;
    std::string color;
  };
  struct Text {
    double x, y;  // of its base line
    std::string text;
    Anchor anchor = Anchor::kStart;
    std::string color = "#222222";
    bool upwards = false;
  };
  double width = 0, height = 0;
  std::vector<Line> lines;  // behind bars, which are behind texts
  std::vector<Bar> bars;
  std::vector<Text> texts;
};

inline constexpr double kFontSize = 12;

// Round numbers for an axis: from 0 until one is at least `most`.
std::vector<double> round_ticks(double most);

// For text between a page's marks.
std::string escaped(std::string_view text);

std::string to_svg(const Figure& figure);

}  // namespace tithe::cli
