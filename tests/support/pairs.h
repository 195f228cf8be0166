// SPDX-License-Identifier: Apache-2.0
#pragma once
// Covering arrays: few rows of the product of several lists, such that any two entries of any two lists occur
// together in some row. The search is simple and deterministic. TITHE_TEST_FULL=1 (`make test-full`) selects the
// whole product.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

namespace tithe::harness {

inline bool full_products() {
  const char* full = std::getenv("TITHE_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

using Row = std::vector<std::size_t>;  // by list, the place of an entry

inline std::vector<Row> product(const std::vector<std::size_t>& sizes) {
  std::vector<Row> rows(1);
  for (const std::size_t size : sizes) {
    std::vector<Row> longer;
    for (const Row& row : rows)
      for (std::size_t k = 0; k < size; ++k) {
        longer.push_back(row);
        longer.back().push_back(k);
      }
    rows = std::move(longer);
  }
  return rows;
}

// Adds list after list, the longest first ("in parameter order", Lei and Tai 1998): each row takes the entry of the
// new list that covers most uncovered pairs; further rows cover the pairs that remain.
inline std::vector<Row> cover_pairs(const std::vector<std::size_t>& sizes) {
  if (sizes.size() < 3 || std::find(sizes.begin(), sizes.end(), 0U) != sizes.end()) return product(sizes);
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });
  std::vector<Row> rows = product({sizes[order[0]], sizes[order[1]]});
  for (std::size_t f = 2; f < order.size(); ++f) {
    const std::size_t levels = sizes[order[f]];
    std::vector<std::vector<std::vector<bool>>> met;  // [earlier list][its entry][entry of this list]
    for (std::size_t g = 0; g < f; ++g) met.emplace_back(sizes[order[g]], std::vector<bool>(levels));
    std::vector<std::size_t> used(levels);
    const auto gain = [&](const Row& row, std::size_t entry) {
      std::size_t fresh = 0;
      for (std::size_t g = 0; g < f; ++g) fresh += !met[g][row[g]][entry];
      return fresh;
    };
    const auto take = [&](Row& row, std::size_t entry) {
      for (std::size_t g = 0; g < f; ++g) met[g][row[g]][entry] = true;
      ++used[entry];
      row.push_back(entry);
    };
    for (Row& row : rows) {
      std::size_t best = 0;
      for (std::size_t e = 1; e < levels; ++e) {
        const std::size_t now = gain(row, e), before = gain(row, best);
        if (now > before || (now == before && used[e] < used[best])) best = e;
      }
      take(row, best);
    }
    for (std::size_t g = 0; g < f; ++g)
      for (std::size_t a = 0; a < met[g].size(); ++a)
        for (std::size_t e = 0; e < levels; ++e) {
          if (met[g][a][e]) continue;
          Row row(f);
          for (std::size_t h = 0; h < f; ++h) {
            const auto missing = [&](std::size_t k) { return !met[h][k][e]; };
            std::size_t entry = 0;
            while (entry < met[h].size() && !missing(entry)) ++entry;
            row[h] = h == g ? a : entry < met[h].size() ? entry : rows.size() % met[h].size();
          }
          take(row, e);
          rows.push_back(std::move(row));
        }
  }
  for (Row& row : rows) {
    Row in_place(row.size());
    for (std::size_t f = 0; f < order.size(); ++f) in_place[order[f]] = row[f];
    row = std::move(in_place);
  }
  return rows;
}

// The rows that the tests run over.
inline std::vector<Row> pairs_or_product(const std::vector<std::size_t>& sizes) {
  return full_products() ? product(sizes) : cover_pairs(sizes);
}

}  // namespace tithe::harness
