// SPDX-License-Identifier: Apache-2.0
// Paired speed ratios of the codecs, a row per kernel and size, with the best vector instructions of this machine and
// with AVX2 (method: paired.h). Rows with a goal come first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/rng.h"
#include "rows.h"
#include "tithe/seam/machine.h"

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

// The processor, and its load at the start.
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

// Per row a group of figures for each target. Goals are held by the first one.
class Table {
 public:
  Table(bool json, std::vector<std::string> targets) : json_(json), targets_(std::move(targets)) {}
  const std::vector<std::string>& targets() const { return targets_; }

  void head(const std::string& what, const char* kernel, const char* reference) {
    if (json_) return;
    std::string over = fmt::format("{:<60}", what);
    for (const std::string& target : targets_) over += fmt::format(" | {:<{}}", target, kGroupWidth);
    over.erase(over.find_last_not_of(' ') + 1);
    fmt::print("\n{}\n{:<46} {:>9} {:>3}", over, "row", "values", "thr");
    for (std::size_t t = 0; t < targets_.size(); ++t)
      fmt::print(" | {:>6} {:>6} {:>6} {:>13} {:>5} {:<6} {:>6}", kernel, reference, "ratio", "quartiles",
                 t == 0 ? "goal" : "", "", "kept");
    fmt::print(" | reference\n");
  }

  // One outcome per target. goal 0: none.
  void row(const Row& row, std::span<const Outcome> outcomes, int threads, double goal,
           const char* otherwise = "") {
    if (!json_) fmt::print("{:<46} {:>9} {:>3}", row.name, row.n, threads);
    for (std::size_t t = 0; t < outcomes.size(); ++t) {
      group(row, outcomes[t], targets_[t], threads, t == 0 ? goal : 0, t == 0 ? otherwise : "");
    }
    if (json_) return;
    const std::string& note = outcomes.front().note;
    fmt::print(" | {}{}{}\n", row.reference, note.empty() ? "" : "; ", note);
    std::fflush(stdout);
  }

  void note(const std::string& text) const {
    if (!json_) fmt::print("{}\n", text);
  }

  void end() const {
    if (json_)
      fmt::print("{}\n", document_.dump(2));
    else
      fmt::print("\n{} rows with a goal: {} pass, {} short, {} noisy\n", pass_ + short_ + noisy_, pass_,
                 short_, noisy_);
  }

 private:
  static constexpr int kGroupWidth = 54;

  void group(const Row& row, const Outcome& out, const std::string& target, int threads, double goal,
             const char* otherwise) {
    const bool measured = out.kept >= 5;  // fewer undisturbed pairs are not significant
    const char* verdict = !measured ? "noisy" : goal == 0 ? otherwise : out.ratio >= goal ? "pass" : "short";
    if (goal > 0) ++(!measured ? noisy_ : out.ratio >= goal ? pass_ : short_);
    if (json_) {
      document_.push_back({{"row", row.name},
                           {"n", row.n},
                           {"threads", threads},
                           {"target", target},
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
    const auto figure = [&](double v, int digits) {
      return out.kept == 0 ? "-" : fmt::format("{:.{}f}", v, digits);
    };
    fmt::print(" | {:>6} {:>6} {:>6} {:>13} {:>5} {:<6} {:>6}", figure(out.kernel_gbs, 1),
               figure(out.reference_gbs, 1), figure(out.ratio, 2),
               out.kept == 0 ? "-" : fmt::format("{:.2f}..{:.2f}", out.low, out.high),
               goal > 0 ? fmt::format("{:.2f}", goal) : "", verdict,
               fmt::format("{}/{}", out.kept, out.tried));
  }

  const bool json_;
  const std::vector<std::string> targets_;
  nlohmann::json document_ = nlohmann::json::array();
  int pass_ = 0, short_ = 0, noisy_ = 0;
};

void hold_to(const std::string& target) {
  if (const Status used = use_target(target); !used.ok()) {
    fmt::print(stderr, "bench_codecs: {}\n", used.what());
    std::exit(2);
  }
}

// The target in use, and AVX2, so that it is measured on every machine that has it.
std::vector<std::string> default_targets() {
  std::vector<std::string> names{target()};
  const std::vector<std::string> all = targets();
  const auto in_use = std::ranges::find(all, target());
  if (std::find(in_use, all.end(), "avx2") != all.end() && target() != "avx2") names.emplace_back("avx2");
  return names;
}

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
      std::vector<Outcome> outcomes;
      for (const std::string& target : table.targets()) {
        hold_to(target);
        outcomes.push_back(measure(row, o));
      }
      table.row(row, outcomes, o.threads, o.threads == 1 ? row.goal : 0);
    }
  }
  if (table.targets().front() == "avx2")
    table.note("goals were set where there is AVX-512: many are out of reach here");
}

enum class Side { kKernel, kReference };

// The same work on options.threads threads and on one thread, alternately. The ratio is the speedup; reference_gbs is
// the speed of one thread. `side` selects the row's kernel or its reference.
Outcome measure_scaling(const Row& row, const Options& options, Side side) {
  std::vector<std::unique_ptr<Case>> shares(static_cast<std::size_t>(options.threads));
  std::unique_ptr<Case> whole;
  // Some references move as many bytes as the kernel has written, so the kernel runs first.
  const auto make = [&](std::size_t n) {
    std::unique_ptr<Case> made = row.make(n);
    made->fresh(0);
    made->kernel();
    return made;
  };
  const auto of = [&](int thread, bool share) -> Case& {
    return share ? *shares[static_cast<std::size_t>(thread)] : *whole;
  };
  return in_pairs(row.n, options,
                  {.make =
                       [&](int thread) {
                         shares[static_cast<std::size_t>(thread)] =
                             make(row.n / static_cast<std::size_t>(options.threads));
                         if (thread == 0) whole = make(row.n);
                       },
                   .fresh =
                       [&](int thread, bool share, std::uint64_t draw) {
                         if (share || thread == 0)
                           of(thread, share).fresh(mix64(draw * 64 + static_cast<std::uint64_t>(thread)));
                       },
                   .run =
                       [&](int thread, bool share) {
                         if (!share && thread != 0) return;
                         side == Side::kKernel ? of(thread, share).kernel() : of(thread, share).reference();
                       }});
}

// A kernel is memory-bound if 1.6 times its speed on one thread exceeds the speed of the lowest memory traffic on all
// threads.
void scaling(const std::vector<Row>& rows, const Options& options, Table& table) {
  table.head(fmt::format("{} threads beside one", options.threads), "GB/s", "1 thr");
  for (const Row& row : rows) {
    if (section_of(row) != Section::kGoals) continue;
    std::vector<Outcome> outcomes;
    bool memory = false;  // of the first target, which has the goals
    for (const std::string& target : table.targets()) {
      hold_to(target);
      Outcome kernel = measure_scaling(row, options, Side::kKernel);
      if (row.bound_by_traffic && outcomes.empty()) {
        const Outcome least = measure_scaling(row, options, Side::kReference);
        memory = kScalingGoal * kernel.reference_gbs > least.kernel_gbs;
        kernel.note = fmt::format("{:.1f} GB/s on {} threads, {:.1f} on one", least.kernel_gbs,
                                  options.threads, least.reference_gbs);
      }
      outcomes.push_back(kernel);
    }
    table.row(row, outcomes, options.threads, options.threads == 2 && !memory ? kScalingGoal : 0,
              memory ? "memory" : "");
  }
  table.note(fmt::format("'memory': no {} x to be had, by the reference's own speed", kScalingGoal));
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
  std::vector<std::string> targets;
  app.add_option(
      "--target", targets,
      "hold all kernels to these vector instructions; may stand several times, a group of columns each; "
      "else the machine's best, and avx2 (with --scaling: the best alone)");
  CLI11_PARSE(app, argc, argv);
  if (const tithe::Status environment = tithe::check_environment(); !environment.ok()) {
    fmt::print(stderr, "bench_codecs: {}\n", environment.what());
    return 2;
  }
  if (targets.empty()) targets = scale ? std::vector{tithe::target()} : default_targets();
  for (const std::string& target : targets) hold_to(target);

  std::vector<Row> rows = all_rows();
  std::erase_if(rows, [&](const Row& row) { return row.name.find(filter) == std::string::npos; });
  if (!json) fmt::print("{}\n", machine());
  Table table(json, targets);
  if (scale) {
    if (threads->count() == 0) options.threads = 2;
    scaling(rows, options, table);
  } else {
    ratios(rows, options, goals, table);
  }
  table.end();
}
