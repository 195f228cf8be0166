// SPDX-License-Identifier: Apache-2.0
// The cost of new choices for a running job (Session::propose): steps while the new plan is built, the step of the
// switch, and steps before and after, as ratios within one run. Ranks are threads on `loop`, so no cost is hidden by
// a slow link: on a real link the same milliseconds are a smaller part of a step.
//
// A step is a round of all buckets and its commit. The switch is part of the last commit with the old choices; in the
// first step with the new ones, cards are compared and residuals are sent. Each is a ratio to the usual step with the
// same choices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "advisor/measure/model_list.h"
#include "tithe/connect.h"
#include "tithe/session.h"

namespace tithe::bench {
namespace {

struct Args {
  std::string model = "bert_base";
  std::size_t scale = 4;
  std::size_t bucket_mb = 25;
  int ranks = 4, lanes = 1, steps = 12, switches = 10;
  std::string from = "fp8", to = "topk:ratio=0.01";
};

double median(std::vector<double> v) {
  if (v.empty()) return std::nan("");
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

class Worker {
 public:
  Worker(const Args& args, const ModelList& model, std::unique_ptr<Transport> transport) {
    const SessionOptions options{.codec = args.from, .lanes = args.lanes};
    auto opened = Session::open(std::move(transport), options);
    if (!opened.ok()) {
      fmt::print(stderr, "{}\n", opened.status().what());
      std::exit(1);
    }
    session_ = std::move(*opened);
    std::size_t bytes = 0;
    for (const ModelTensor& t : model.tensors) {
      const std::size_t n = t.values;
      if (buckets_.empty() || bytes + 4 * n > args.bucket_mb << 20) {
        buckets_.emplace_back();
        bytes = 0;
      }
      bytes += 4 * n;
      buckets_.back().keys.push_back(t.name);
      buckets_.back().sizes.push_back(n);
    }
    for (Bucket& b : buckets_) {
      std::size_t all = 0;
      for (const std::size_t n : b.sizes) all += n;
      b.values.resize(all);
    }
  }

  Session& session() { return *session_; }

  void compute(int number) {  // gradients of a step
    for (Bucket& b : buckets_)
      for (std::size_t i = 0; i < b.values.size(); ++i)
        b.values[i] = static_cast<float>((i * 2654435761U + static_cast<unsigned>(number)) % 4096) - 2048.0F;
  }

  void step() {
    std::vector<Ticket> tickets;
    for (Bucket& b : buckets_) {
      std::vector<Tensor> tensors;
      float* at = b.values.data();
      for (std::size_t k = 0; k < b.keys.size(); ++k, at += b.sizes[k - 1])
        tensors.push_back({.key = b.keys[k], .data = at, .n = b.sizes[k]});
      tickets.push_back(must(session_->sync(tensors)));
    }
    for (const Ticket t : tickets) must(session_->wait(t));
    must(session_->commit());
  }

 private:
  struct Bucket {
    std::vector<std::string> keys;
    std::vector<std::size_t> sizes;
    std::vector<float> values;
  };
  static void must(const Status& s) {
    if (s.ok()) return;
    fmt::print(stderr, "{}\n", s.what());
    std::exit(1);
  }
  static Ticket must(const Result<Ticket>& t) {
    must(t.status());
    return *t;
  }
  std::unique_ptr<Session> session_;
  std::vector<Bucket> buckets_;
};

struct Steps {
  std::vector<double> normal[2];  // ms
  std::vector<double> building[2], last[2],
      first[2];  // with the old choices and with the new ones; by direction of the switch
};

int run(const Args& args) {
  const Result<ModelList> model =
      open_model(fmt::format("{}:scale={}", args.model, 1.0 / static_cast<double>(args.scale)));
  if (!model.ok()) {
    fmt::print(stderr, "{}\n", model.status().what());
    return 1;
  }
  std::vector<std::unique_ptr<Worker>> ranks;
  for (auto& t : open_loop(args.ranks)) ranks.push_back(std::make_unique<Worker>(args, *model, std::move(t)));
  int number = 0;
  const auto step = [&] {
    ++number;
    for (const auto& rank : ranks) rank->compute(number);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (std::size_t r = 1; r < ranks.size(); ++r) others.emplace_back([&, r] { ranks[r]->step(); });
    ranks[0]->step();
    for (std::thread& t : others) t.join();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
  Steps all;
  for (int k = 0; k < 3; ++k) step();
  for (int s = 0; s < args.switches; ++s) {
    for (int k = 0; k < args.steps; ++k) all.normal[s % 2].push_back(step());
    const std::string next = s % 2 == 0 ? "{\"*\": \"" + args.to + "\"}" : "{}";
    if (const Status wrong = ranks[0]->session().propose(next); !wrong.ok()) {
      fmt::print(stderr, "{}\n", wrong.what());
      return 1;
    }
    double last = 0;
    while (true) {
      last = step();
      const Proposal p = ranks[0]->session().proposal();
      if (p.state == Proposal::State::kSwitched) break;
      if (p.state == Proposal::State::kRefused) {
        fmt::print(stderr, "{}\n", p.why.what());
        return 1;
      }
      all.building[s % 2].push_back(last);
    }
    all.last[s % 2].push_back(last);
    all.first[s % 2].push_back(step());
    step();  // the last round that sends residuals
  }
  const double normal[] = {median(all.normal[0]), median(all.normal[1])};
  fmt::print("{} / {}, {} ranks, {} lanes, {} <-> {}, {} switches\n", model->model, args.scale, args.ranks,
             args.lanes, args.from, args.to, args.switches);
  fmt::print("usual step, ms                {:8.2f} and {:.2f}\n", normal[0], normal[1]);
  const auto slow_tenth = [&](std::size_t way) {
    std::vector<double>& v = all.normal[way];
    std::sort(v.begin(), v.end());
    return v[v.size() * 9 / 10] / normal[way];
  };
  fmt::print("usual, slowest tenth / median {:8.2f} and {:.2f}\n", slow_tenth(0), slow_tenth(1));
  for (const std::size_t way : {0U, 1U}) {
    const auto print = [](const char* what, std::vector<double> v, double by) {
      if (v.empty()) return;
      fmt::print("  {:28}{:8.2f} (median), {:.2f} (worst of {})\n", what, median(v) / by,
                 *std::max_element(v.begin(), v.end()) / by, v.size());
    };
    fmt::print("to {}, by the usual step with the same choices\n", way == 0 ? args.to : args.from);
    print("while it is built", all.building[way], normal[way]);
    print("last step with the old", all.last[way], normal[way]);
    print("first step with the new", all.first[way], normal[1 - way]);
  }
  return 0;
}

}  // namespace
}  // namespace tithe::bench

int main(int argc, char** argv) {
  tithe::bench::Args args;
  CLI::App app("The cost of a change of choices in a running job");
  app.add_option("--model", args.model, "list of tensors")->capture_default_str();
  app.add_option("--scale", args.scale, "divides the values of each tensor")->capture_default_str();
  app.add_option("--bucket-mb", args.bucket_mb)->capture_default_str();
  app.add_option("--ranks", args.ranks)->capture_default_str();
  app.add_option("--lanes", args.lanes)->capture_default_str();
  app.add_option("--steps", args.steps, "between two proposals")->capture_default_str();
  app.add_option("--switches", args.switches)->capture_default_str();
  app.add_option("--from", args.from, "codec")->capture_default_str();
  app.add_option("--to", args.to, "codec")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return tithe::bench::run(args);
}
