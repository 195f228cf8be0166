// SPDX-License-Identifier: Apache-2.0
// Rows for the paired benchmark. A row creates its cases with the codec's kernels and a reference.
#include "advisor/measure/codec_rows.h"

#include <fmt/format.h>

#include <cstdlib>

#include "advisor/measure/codec_cases.h"
#include "tithe/seam/catalogue.h"

namespace tithe::bench {

void fail(const Status& why) {
  fmt::print(stderr, "bench_codecs: {}\n", why.what());
  std::exit(1);
}

Spec spec_of(const std::string& text) {
  const Result<Spec> spec = parse_spec(text);
  if (!spec.ok()) fail(spec.status());
  prepare(*spec);
  return *spec;
}

void add_both_sizes(std::vector<Row>& rows, Row row, double goal) {
  constexpr double kInCacheGoal = 0.6;
  row.n = kFromMemory;
  row.goal = goal;
  rows.push_back(row);
  row.n = kInCache;
  row.goal = goal > 0 ? kInCacheGoal : 0;
  rows.push_back(row);
}

void add_encode(std::vector<Row>& rows, const std::string& spec, Residual residual, double goal) {
  static constexpr const char* kWhat[] = {"", ", feedback", ", feedback apart"};
  static constexpr const char* kReference[] = {"copy of the same number of bytes", "r += g", "out = r + g"};
  const auto kind = static_cast<std::size_t>(residual);
  Row row;
  row.name = fmt::format("{} encode{}", spec, kWhat[kind]);
  row.reference = kReference[kind];
  row.make = [=](std::size_t n) { return std::make_unique<EncodeCase>(spec_of(spec), residual, n); };
  add_both_sizes(rows, row, goal);
}

void add_decode(std::vector<Row>& rows, const std::string& spec, int peers, double goal) {
  Row row;
  row.name = fmt::format("{} decode and add, {} peer{}", spec, peers, peers == 1 ? "" : "s");
  row.reference = "scale in place + payloads";
  row.make = [=](std::size_t n) { return std::make_unique<DecodeCase>(spec_of(spec), peers, n); };
  add_both_sizes(rows, row, goal);
}

}  // namespace tithe::bench
