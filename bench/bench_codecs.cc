// SPDX-License-Identifier: Apache-2.0
// Paired speed ratios of the codecs, a row per kernel and size (method: paired.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "codec_rows.h"

int main(int argc, char** argv) {
  using namespace tithe::bench;
  CLI::App app{"Codec kernels against references with the same traffic, as paired ratios."};
  std::string filter;
  bool json = false;
  Options options;
  app.add_option("--filter", filter, "only rows whose name holds this text");
  app.add_option("--rounds", options.rounds, "pairs per row at 25M values; 3x as many in cache")
      ->check(CLI::Range(1, 1000));
  app.add_option("--threads", options.threads, "threads, each with its share of the values")
      ->check(CLI::Range(1, 256));
  app.add_flag("--json", json, "one JSON document instead of the table");
  CLI11_PARSE(app, argc, argv);

  std::vector<Row> rows;
  add_dense_rows(rows);
  add_sparse_rows(rows);

  auto document = nlohmann::json::array();
  if (!json)
    fmt::print("{:<38} {:>9} {:>3} {:>7} {:>7} {:>6} {:>13} {:>5} {:<5} {:>7}  {}\n", "row", "values", "thr",
               "GB/s", "ref", "ratio", "quartiles", "goal", "", "kept", "reference");
  for (const Row& row : rows) {
    if (row.name.find(filter) == std::string::npos) continue;
    Options o = options;
    if (row.n == kInCache) o.rounds *= 3;
    const Outcome out = measure(row, o);
    const bool judged = row.goal > 0 && options.threads == 1;
    const bool measured = out.kept >= 5;  // fewer undisturbed pairs say nothing
    const char* verdict = !measured ? "noisy" : !judged ? "" : out.ratio >= row.goal ? "pass" : "short";
    if (json) {
      document.push_back({{"row", row.name},
                          {"n", row.n},
                          {"threads", options.threads},
                          {"kernel_gbs", out.kernel_gbs},
                          {"reference_gbs", out.reference_gbs},
                          {"reference", row.reference},
                          {"ratio", out.ratio},
                          {"ratio_p25", out.low},
                          {"ratio_p75", out.high},
                          {"goal", row.goal},
                          {"verdict", verdict},
                          {"kept", out.kept},
                          {"tried", out.tried}});
    } else {
      fmt::print("{:<38} {:>9} {:>3} {:>7.1f} {:>7.1f} {:>6.2f} {:>13} {:>5} {:<5} {:>7}  {}\n", row.name,
                 row.n, options.threads, out.kernel_gbs, out.reference_gbs, out.ratio,
                 fmt::format("{:.2f}..{:.2f}", out.low, out.high),
                 judged ? fmt::format("{:.2f}", row.goal) : "", verdict,
                 fmt::format("{}/{}", out.kept, out.tried), row.reference);
      std::fflush(stdout);
    }
  }
  if (json) fmt::print("{}\n", document.dump(2));
}
