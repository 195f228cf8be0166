// SPDX-License-Identifier: Apache-2.0
#pragma once
// A figure of lines, bars and texts, drawn once and written as SVG or as PNG: both show the same.
//
//   self-contained   the SVG stands inside a page and names nothing outside it
//   optional         PNG needs a build with Cairo; one without refuses, with the cure
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tithe/status.h"

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
// kUnsupported where this build cannot.
Result<std::vector<std::uint8_t>> to_png(const Figure& figure);
bool can_png();

}  // namespace tithe::cli
