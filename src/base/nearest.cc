// SPDX-License-Identifier: Apache-2.0
// Edit distance by dynamic programming over three rows.
#include "base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tithe {
namespace {

// The number of letters to change, insert, delete, or swap with the next one (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view wrong, std::span<const std::string_view> known) {
  const auto begins = [&](std::string_view k) { return wrong.size() > 1 && k.starts_with(wrong); };
  if (std::count_if(known.begin(), known.end(), begins) == 1)
    return *std::find_if(known.begin(), known.end(), begins);
  std::string_view best;
  std::size_t least = 4;  // a larger distance is no help
  for (const std::string_view k : known)
    if (const std::size_t d = distance(wrong, k); d < least && 2 * d <= std::max(wrong.size(), k.size())) {
      least = d;
      best = k;
    }
  return best;
}

std::string suggest(std::string_view wrong, std::span<const std::string_view> known) {
  std::string text = "known: ";
  const auto has_comma = [](std::string_view name) { return name.find(',') != std::string_view::npos; };
  const char* const quote = std::any_of(known.begin(), known.end(), has_comma) ? "\"" : "";
  for (std::size_t i = 0; i < known.size(); ++i) {
    text += i == 0 ? "" : ", ";
    (text += quote).append(known[i]) += quote;
  }
  const std::string_view best = nearest_name(wrong, known);
  return best.empty() ? text : "did you mean '" + std::string(best) + "'? " + text;
}

}  // namespace tithe
