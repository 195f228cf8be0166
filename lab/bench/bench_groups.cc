// SPDX-License-Identifier: Apache-2.0
// The cost of small tensors: a model's tensors below 16 KB, as one message of the same size (a single tensor), as a
// group in one bucket, as groups in the buckets that DistributedDataParallel would fill, as one group sent with the
// last of those buckets, and one by one. Ranks are threads on `loop`; rounds of all five alternate, and each round's
// ratio to the single tensor is recorded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "advisor/measure/model_list.h"
#include "tithe/connect.h"
#include "tithe/session.h"

namespace tithe::bench {
namespace {

struct Args {
  std::string model = "bert_base";
  int ranks = 4;
  int lanes = 1;
  int turns = 15;
  int rounds = 10;  // of a turn
  std::vector<std::string> codecs = {"fp32", "fp8", "onebit"};
  std::string strategy = "server";
};

constexpr std::size_t kSmall = 16 * 1024 / 4;  // values
constexpr std::size_t kFirstBytes = std::size_t{1} << 20,
                      kBucketBytes = std::size_t{25} << 20;  // as DDP fills them

using Sizes = std::vector<std::size_t>;

[[noreturn]] void fail(const Status& why) {
  fmt::print(stderr, "bench_groups: {}\n", why.what());
  std::_Exit(1);
}

// Buckets of small tensors that all ranks synchronise repeatedly.
class Arrangement {
 public:
  // at_the_end: all tensors are passed together, from the memory of their buckets.
  Arrangement(const std::vector<Sizes>& buckets, bool at_the_end, const SessionOptions& options, int world)
      : gate_(world + 1), at_the_end_(at_the_end) {
    for (auto& transport : open_loop(world)) {
      auto session = Session::open(std::move(transport), options);
      if (!session.ok()) fail(session.status());
      sessions_.push_back(std::move(*session));
    }
    for (int r = 0; r < world; ++r) ranks_.emplace_back([this, r, buckets] { work(r, buckets); });
  }
  ~Arrangement() {
    rounds_ = 0;
    gate_.arrive_and_wait();
    for (std::thread& t : ranks_) t.join();
  }
  Arrangement(const Arrangement&) = delete;
  Arrangement& operator=(const Arrangement&) = delete;

  double seconds(int rounds) {
    rounds_ = rounds;
    gate_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    gate_.arrive_and_wait();
    done_ += static_cast<std::uint64_t>(rounds);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / rounds;
  }
  double frames() const { return static_cast<double>(sessions_[0]->stats().frames_sent) / each(); }
  double bytes() const { return static_cast<double>(sessions_[0]->stats().bytes_sent) / each(); }

 private:
  double each() const { return static_cast<double>(std::max<std::uint64_t>(done_, 1)); }
  void work(int rank, const std::vector<Sizes>& buckets) {
    std::vector<std::vector<float>> values;
    std::vector<std::string> keys;
    for (const Sizes& b : buckets)
      for (const std::size_t n : b) keys.push_back(fmt::format("t{}.{}", keys.size(), n));
    std::vector<std::vector<Tensor>> tensors;
    std::size_t key = 0;
    for (const Sizes& b : buckets) {  // a bucket's tensors are contiguous, like the caller's gradients
      std::size_t all = 0, at = 0;
      for (const std::size_t n : b) all += n;
      values.emplace_back(all, 0.5F);
      std::vector<Tensor>& into = tensors.emplace_back();
      for (const std::size_t n : b) {
        into.push_back({.key = keys[key++], .data = values.back().data() + at, .n = n});
        at += n;
      }
    }
    if (at_the_end_) {
      for (std::size_t b = 1; b < tensors.size(); ++b)
        tensors[0].insert(tensors[0].end(), tensors[b].begin(), tensors[b].end());
      tensors.resize(1);
    }
    Session& session = *sessions_[static_cast<std::size_t>(rank)];
    while (true) {
      gate_.arrive_and_wait();
      if (rounds_ == 0) return;
      for (int k = 0; k < rounds_; ++k) {
        for (const auto& bucket : tensors)
          if (const auto ticket = session.sync(bucket); !ticket.ok()) fail(ticket.status());
        if (const Status s = session.commit(); !s.ok()) fail(s);
      }
      gate_.arrive_and_wait();
    }
  }

  std::barrier<> gate_;
  const bool at_the_end_;
  int rounds_ = 0;
  std::uint64_t done_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::thread> ranks_;
};

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}

int run(const Args& args) {
  const Result<ModelList> list = open_model(args.model);
  if (!list.ok()) fail(list.status());
  std::vector<Sizes> spread;
  Sizes together;
  std::size_t all = 0;
  for (const TensorSpan bucket : buckets_of(*list, kFirstBytes, kBucketBytes)) {
    spread.emplace_back();
    for (const ModelTensor& t : bucket) {
      if (t.values >= kSmall) continue;
      spread.back().push_back(t.values);
      together.push_back(t.values);
      all += t.values;
    }
  }
  std::erase_if(spread, [](const Sizes& b) { return b.empty(); });
  fmt::print("{}: {} of {} tensors are below 16 KB, {} values in all; {} ranks on loop, {}\n", list->model,
             together.size(), list->tensors.size(), all, args.ranks, args.strategy);
  fmt::print("a round in milliseconds, and times that of one tensor of as many values: median (quartiles)\n");
  fmt::print("{:<8} {:<28} {:>7} {:>9} {:>7}  {}\n", "codec", "arrangement", "frames", "bytes", "ms",
             "ratio");
  for (const std::string& codec : args.codecs) {
    const auto options = [&](const std::string& rules) {
      return SessionOptions{
          .codec = codec, .strategy = args.strategy, .choices = rules, .lanes = args.lanes, .min_values = 0};
    };
    const std::string group = R"({"version": 1, "rules": [{"size": "< 4096", "codec": ")" + codec +
                              R"(", "strategy": ")" + args.strategy + R"(", "group": "few"}]})";
    struct Row {
      std::string name;
      std::unique_ptr<Arrangement> made;
      std::vector<double> ratios = {}, times = {};
    };
    std::vector<Row> rows;
    const auto add = [&](const std::string& name, const std::vector<Sizes>& buckets, const std::string& rules,
                         bool at_the_end = false) {
      rows.push_back({name, std::make_unique<Arrangement>(buckets, at_the_end, options(rules), args.ranks)});
      rows.back().made->seconds(3);
    };
    add("one tensor", {{all}}, "");
    add("a group, one bucket", {together}, group);
    add(fmt::format("groups in {} buckets", spread.size()), spread, group);
    add(fmt::format("a group of {} buckets", spread.size()), spread, group, true);
    add("each by itself, one bucket", {together}, "");
    for (int turn = 0; turn < args.turns; ++turn) {
      for (Row& row : rows) {
        row.times.push_back(row.made->seconds(args.rounds));
        row.ratios.push_back(row.times.back() / rows[0].times.back());
      }
    }
    for (const Row& row : rows)
      fmt::print("{:<8} {:<28} {:>7.0f} {:>9.0f} {:>7.2f}  {:.2f} ({:.2f} .. {:.2f})\n", codec, row.name,
                 row.made->frames(), row.made->bytes(), 1e3 * quantile(row.times, 0.5),
                 quantile(row.ratios, 0.5), quantile(row.ratios, 0.25), quantile(row.ratios, 0.75));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tithe::bench

int main(int argc, char** argv) {
  tithe::bench::Args args;
  CLI::App app("what small tensors cost, in groups and alone");
  app.add_option("--model", args.model, "a name in data/models/, or a file")->capture_default_str();
  app.add_option("--ranks", args.ranks, "threads")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--lanes", args.lanes, "compute threads per rank")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--turns", args.turns, "of all arrangements")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--rounds", args.rounds, "of a turn")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--codecs", args.codecs, "specs")->delimiter(';')->capture_default_str();
  app.add_option("--strategy", args.strategy, "who sends what to whom")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return tithe::bench::run(args);
}
