// SPDX-License-Identifier: Apache-2.0
#pragma once
// A figure of lines, bars and texts as SVG, to be embedded in an HTML page without external references.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tithe::cli {

// Lengths are in pixels from the upper left corner; colours are "#rrggbb".
struct Figure {
  enum class Anchor { kStart, kMiddle, kEnd };
  struct Line {
    std::vector<std::pair<double, double>> points;
    std::string color;
    double width = 1;
    bool dots = false;  // draws a dot at each point
  };
  struct Bar {
    double x, y, width, height;
    std::string color;
  };
  struct Text {
    double x, y;  // of the base line
    std::string text;
    Anchor anchor = Anchor::kStart;
    std::string color = "#222222";
    bool upwards = false;
  };
  double width = 0, height = 0;
  std::vector<Line> lines = {};  // drawn first, then bars, then texts
  std::vector<Bar> bars = {};
  std::vector<Text> texts = {};
};

inline constexpr double kFontSize = 12;

// Round numbers for an axis, from 0 to the first one of at least `most`.
std::vector<double> round_ticks(double most);

// Escapes text for use in HTML.
std::string escaped(std::string_view text);

std::string to_svg(const Figure& figure);

}  // namespace tithe::cli
