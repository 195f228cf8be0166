// SPDX-License-Identifier: Apache-2.0
// Paired speed ratios of the codecs, a row per kernel and size (method: paired.h). Rows with a goal come first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "codec/machine.h"
#include "codec_rows.h"

namespace tithe::bench {
namespace {

constexpr double kScalingGoal = 1.6;  // of two threads

std::vector<Row> all_rows() {
  std::vector<Row> rows;
#define TITHE_ROWS(name) add_##name##_rows(rows);
#include "rows.def"
#undef TITHE_ROWS
  return rows;
}

enum class Section { kGoals, kInCacheGoals, kInformation, kEveryCodec };
Section section_of(const Row& row) {
  if (row.of_every_codec) return Section::kEveryCodec;
  if (row.goal == 0) return Section::kInformation;
  return row.n == kInCache ? Section::kInCacheGoals : Section::kGoals;
}

// Which processor, and how busy it was when this began.
std::string machine() {
  std::string model = "unknown processor", line;
  for (std::ifstream cpus("/proc/cpuinfo"); std::getline(cpus, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  double load = 0;
  getloadavg(&load, 1);
  return fmt::format("{}, {} of them, load {:.2f}", model, std::thread::hardware_concurrency(), load);
}

class Table {
 public:
  explicit Table(bool json) : json_(json) {}

  void head(const std::string& what, const char* kernel, const char* reference) {
    if (!json_)
      fmt::print("\n{}\n{:<46} {:>9} {:>3} {:>7} {:>7} {:>6} {:>13} {:>5} {:<6} {:>7}  {}\n", what, "row",
                 "values", "thr", kernel, reference, "ratio", "quartiles", "goal", "", "kept", "reference");
  }

  // goal 0: none.
  void row(const Row& row, const Outcome& out, int threads, double goal, const char* otherwise = "") {
    const bool measured = out.kept >= 5;  // fewer undisturbed pairs say nothing
    const char* verdict = !measured ? "noisy" : goal == 0 ? otherwise : out.ratio >= goal ? "pass" : "short";
    if (goal > 0) ++(!measured ? noisy_ : out.ratio >= goal ? pass_ : short_);
    if (json_) {
      document_.push_back({{"row", row.name},
                           {"n", row.n},
                           {"threads", threads},
                           {"kernel_gbs", out.kernel_gbs},
                           {"reference_gbs", out.reference_gbs},
                           {"reference", row.reference},
                           {"ratio", out.ratio},
                           {"ratio_p25", out.low},
                           {"ratio_p75", out.high},
                           {"goal", goal},
                           {"verdict", verdict},
                           {"kept", out.kept},
                           {"tried", out.tried},
                           {"note", out.note}});
      return;
    }
    fmt::print("{:<46} {:>9} {:>3} {:>7.1f} {:>7.1f} {:>6.2f} {:>13} {:>5} {:<6} {:>7}  {}{}{}\n", row.name,
               row.n, threads, out.kernel_gbs, out.reference_gbs, out.ratio,
               fmt::format("{:.2f}..{:.2f}", out.low, out.high), goal > 0 ? fmt::format("{:.2f}", goal) : "",
               verdict, fmt::format("{}/{}", out.kept, out.tried), row.reference,
               out.note.empty() ? "" : "; ", out.note);
    std::fflush(stdout);
  }

  void end() const {
    if (json_)
      fmt::print("{}\n", document_.dump(2));
    else
      fmt::print("\n{} rows with a goal: {} pass, {} short, {} noisy\n", pass_ + short_ + noisy_, pass_,
                 short_, noisy_);
  }

 private:
  const bool json_;
  nlohmann::json document_ = nlohmann::json::array();
  int pass_ = 0, short_ = 0, noisy_ = 0;
};

void ratios(const std::vector<Row>& rows, const Options& options, bool only_goals, Table& table) {
  for (const auto& [section, title] :
       {std::pair{Section::kGoals, "From memory"}, std::pair{Section::kInCacheGoals, "In cache"},
        std::pair{Section::kInformation, "For information"},
        std::pair{Section::kEveryCodec, "Every codec"}}) {
    if (only_goals && section >= Section::kInformation) continue;
    bool begun = false;
    for (const Row& row : rows) {
      if (section_of(row) != section) continue;
      if (!begun) table.head(title, "GB/s", "ref");
      begun = true;
      Options o = options;
      if (row.n == kInCache) o.rounds *= 3;
      if (row.of_every_codec) o.rounds = (o.rounds + 1) / 2;
      table.row(row, measure(row, o), o.threads, o.threads == 1 ? row.goal : 0);
    }
  }
}

// A kernel is bound by memory where even 1.6 times its speed on one thread is more than the least traffic reaches on
// all.
void scaling(const std::vector<Row>& rows, const Options& options, Table& table) {
  table.head(fmt::format("{} threads beside one; 'memory': no {} x to be had, by the reference's own speed",
                         options.threads, kScalingGoal),
             "GB/s", "1 thr");
  for (const Row& row : rows) {
    if (section_of(row) != Section::kGoals) continue;
    Outcome kernel = measure_scaling(row, options, Side::kKernel);
    bool memory = false;
    if (row.bound_by_traffic) {
      const Outcome least = measure_scaling(row, options, Side::kReference);
      memory = kScalingGoal * kernel.reference_gbs > least.kernel_gbs;
      kernel.note = fmt::format("{:.1f} GB/s on {} threads, {:.1f} on one", least.kernel_gbs, options.threads,
                                least.reference_gbs);
    }
    table.row(row, kernel, options.threads, options.threads == 2 && !memory ? kScalingGoal : 0,
              memory ? "memory" : "");
  }
}

}  // namespace
}  // namespace tithe::bench

int main(int argc, char** argv) {
  using namespace tithe::bench;
  CLI::App app{"Codec kernels against references with the same traffic, as paired ratios."};
  std::string filter;
  bool json = false, goals = false, scale = false;
  Options options;
  app.add_option("--filter", filter, "only rows whose name holds this text");
  app.add_option("--rounds", options.rounds, "pairs per row at 25M values; 3x as many in cache")
      ->check(CLI::Range(1, 1000));
  auto* threads = app.add_option("--threads", options.threads, "threads, each with its share of the values")
                      ->check(CLI::Range(1, 256));
  app.add_flag("--goals", goals, "only rows with a goal");
  app.add_flag("--scaling", scale,
               "threads (two, or --threads) beside one, instead of kernels beside references");
  app.add_flag("--json", json, "one JSON document instead of the table");
  std::string target;
  app.add_option("--target", target, "the vector instructions to hold all kernels to");
  CLI11_PARSE(app, argc, argv);
  if (!target.empty()) if (auto st = tithe::codec::use_target(target); !st.ok()) { fmt::print(stderr, "{}\n", st.what()); return 2; }

  std::vector<Row> rows = all_rows();
  std::erase_if(rows, [&](const Row& row) { return row.name.find(filter) == std::string::npos; });
  if (!json) fmt::print("{}\n", machine());
  Table table(json);
  if (scale) {
    if (threads->count() == 0) options.threads = 2;
    scaling(rows, options, table);
  } else {
    ratios(rows, options, goals, table);
  }
  table.end();
}
