// SPDX-License-Identifier: Apache-2.0
// The engine's own cost per step: rounds of a model's tensors, shrunk until codec and copy time are negligible,
// between ranks that are threads on `loop`. Whole rounds and bare ones (bare_round.h) alternate; their difference is
// the engine's cost: threads, locks, queues, bookkeeping. A step is a node of a graph (graph.h), regardless of the
// engine's steps.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "advisor/measure/model_list.h"
#include "bare_round.h"
#include "engine/peers/session_config.h"
#include "tithe/connect.h"
#include "tithe/session.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<std::uint64_t> g_allocations{0};

void* counted(std::size_t bytes, std::size_t align) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = align <= alignof(std::max_align_t)
                ? std::malloc(bytes)
                : std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return counted(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return counted(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace tithe::bench {
namespace {

struct Args {
  std::string model = "bert_base";
  std::size_t scale = 1024;
  std::vector<int> ranks = {2, 4, 16, 64};
  int lanes = 1;
  int pairs = 5;
  double steps = 500'000;  // at least, of a timed run
  std::string codec = "fp32";
  std::string strategy = "server";
  bool json = false;
};

constexpr std::size_t kBucketBytes = 25 * 1024 * 1024;  // as DistributedDataParallel fills them
constexpr std::size_t kMinValues = 4096;
constexpr std::size_t kPartValues = 1U << 22;

// Counts the engine's calls of poll, and can end them early.
class Counting final : public Transport {
 public:
  struct Counts {
    std::atomic<std::uint64_t> wakes{0}, polls{0};
  };
  Counting(std::unique_ptr<Transport> inner, Counts& counts) : inner_(std::move(inner)), counts_(counts) {}

  std::string_view kind() const override { return inner_->kind(); }
  Rank rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    return inner_->send(peer, channel, bytes, op);
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    return inner_->recv(peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    counts_.polls.fetch_add(1, std::memory_order_relaxed);
    return inner_->poll(out, wait);
  }
  void wake() override {
    counts_.wakes.fetch_add(1, std::memory_order_relaxed);
    inner_->wake();
  }
  void window(std::size_t bytes) override { inner_->window(bytes); }
  void cancel(OpId op) override { inner_->cancel(op); }
  Status peer_status(Rank peer) const override { return inner_->peer_status(peer); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }
  std::uint64_t bytes_received(Rank peer) const override { return inner_->bytes_received(peer); }

 private:
  std::unique_ptr<Transport> inner_;
  Counts& counts_;
};

struct Bucket {
  std::vector<float> values;
  std::vector<Tensor> tensors;
  static Bucket of(std::span<const ModelTensor> list) {
    Bucket b;
    std::size_t n = 0;
    for (const ModelTensor& t : list) n += t.values;
    b.values.resize(n, 1.0F);
    n = 0;
    for (const ModelTensor& t : list) {
      b.tensors.push_back(
          {.key = t.name, .data = b.values.data() + n, .n = t.values, .dtype = DType::kF32, .row = t.row});
      n += t.values;
    }
    return b;
  }
};

struct Usage {
  double cpu_s = 0;
  double switches = 0;  // a thread slept
  static Usage now() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    const auto s = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return {s(u.ru_utime) + s(u.ru_stime), static_cast<double>(u.ru_nvcsw)};
  }
};

// Ranks that live for several runs of rounds.
class Ranks {
 public:
  using Round = std::function<Status(Rank)>;
  Ranks(int world, Round round) : round_(std::move(round)), gate_(world + 1) {
    for (Rank r = 0; r < world; ++r) threads_.emplace_back([this, r] { work(r); });
  }
  ~Ranks() {
    rounds_ = 0;
    gate_.arrive_and_wait();
    for (std::thread& t : threads_) t.join();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Usage run(int rounds) {
    rounds_ = rounds;
    const Usage before = Usage::now();
    gate_.arrive_and_wait();
    gate_.arrive_and_wait();
    const Usage after = Usage::now();
    return {after.cpu_s - before.cpu_s, after.switches - before.switches};
  }

 private:
  void work(Rank r) {
    while (true) {
      gate_.arrive_and_wait();
      if (rounds_ == 0) return;
      for (int k = 0; k < rounds_; ++k)
        if (const Status s = round_(r); !s.ok()) {
          fmt::print(stderr, "bench_engine: rank {}: {}\n", r, s.what());
          std::_Exit(1);
        }
      gate_.arrive_and_wait();
    }
  }
  const Round round_;
  std::barrier<> gate_;
  int rounds_ = 0;
  std::vector<std::thread> threads_;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[v.size() / 2] + v[(v.size() - 1) / 2]) / 2;
}

Result<nlohmann::json> measure(const Args& args, const ModelList& list, int world) {
  const std::size_t scale = args.scale;
  const SessionOptions options{.codec = args.codec,
                               .strategy = args.strategy,
                               .lanes = args.lanes,
                               .min_values = std::max<std::size_t>(kMinValues / scale, 1),
                               .part_values = std::max<std::size_t>(kPartValues / scale, 1)};
  const auto lists = buckets_of(list, kBucketBytes / scale, kBucketBytes / scale);

  // The plans, and how many steps they are.
  const Result<Choices> choices = engine::choices_of(options, world);
  if (!choices.ok()) return choices.status();
  std::vector<Plan> plans;
  double steps = 0;
  for (const auto& tensors : lists) {
    const Bucket bucket = Bucket::of(tensors);
    plans.push_back(engine::plan_of(bucket.tensors, *choices));
    for (const Part& p : plans.back().parts)
      for (Rank r = 0; r < world; ++r)
        steps +=
            static_cast<double>(p.spec.codec->phases.size() * p.strategy->draw({r, world}).nodes().size());
  }
  const int rounds = std::max(1, static_cast<int>(args.steps / steps));

  Counting::Counts counts;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<Bucket>> buckets(static_cast<std::size_t>(world));
  for (auto& transport : open_loop(world)) {
    auto session = Session::open(std::make_unique<Counting>(std::move(transport), counts), options);
    if (!session.ok()) return session.status();
    sessions.push_back(std::move(*session));
  }
  for (auto& own : buckets)
    for (const auto& tensors : lists) own.push_back(Bucket::of(tensors));
  std::vector<std::unique_ptr<BareRank>> bare;
  for (auto& transport : open_loop(world))
    bare.push_back(std::make_unique<BareRank>(std::move(transport), plans));

  Ranks whole_ranks(world, [&](Rank r) {
    const auto k = static_cast<std::size_t>(r);
    for (const Bucket& b : buckets[k])
      if (const auto ticket = sessions[k]->sync(b.tensors); !ticket.ok()) return ticket.status();
    return sessions[k]->commit();
  });
  Ranks bare_ranks(world, [&](Rank r) { return bare[static_cast<std::size_t>(r)]->round(); });
  whole_ranks.run(2);
  bare_ranks.run(2);

  std::vector<double> whole_s, bare_s, switches;
  const double per = 1e5 / (steps * rounds);
  std::uint64_t allocations = 0;
  const std::uint64_t wakes = counts.wakes, polls = counts.polls;
  for (int pair = 0; pair < args.pairs; ++pair) {
    g_allocations = 0;
    g_counting = true;
    const Usage whole = whole_ranks.run(rounds);
    g_counting = false;
    allocations += g_allocations;
    const Usage rest = bare_ranks.run(rounds);
    whole_s.push_back(whole.cpu_s * per);
    bare_s.push_back(rest.cpu_s * per);
    switches.push_back(whole.switches / rounds / world);
  }
  std::vector<double> own;
  for (std::size_t k = 0; k < whole_s.size(); ++k) own.push_back(whole_s[k] - bare_s[k]);
  const double each = static_cast<double>(args.pairs) * rounds * world;
  return nlohmann::json{{"ranks", world},
                        {"lanes", args.lanes},
                        {"codec", args.codec},
                        {"strategy", args.strategy},
                        {"buckets", lists.size()},
                        {"steps_per_round", steps},
                        {"rounds", rounds * args.pairs},
                        {"whole_s", median(whole_s)},
                        {"bare_s", median(bare_s)},
                        {"own_s", median(own)},
                        {"wakes", static_cast<double>(counts.wakes - wakes) / each},
                        {"polls", static_cast<double>(counts.polls - polls) / each},
                        {"sleeps", median(switches)},
                        {"allocations", static_cast<double>(allocations) / each}};
}

int run(const Args& args) {
  const Result<ModelList> list =
      open_model(fmt::format("{}:scale={}", args.model, 1.0 / static_cast<double>(args.scale)));
  if (!list.ok()) {
    fmt::print(stderr, "bench_engine: {}\n", list.status().what());
    return 1;
  }
  if (!args.json)
    fmt::print(
        "{}: {} tensors, {} values, {} by {}, {} lanes\n"
        "CPU seconds per 100,000 steps of all ranks; the rest per rank and round\n"
        "{:>5} {:>9} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} {:>8}\n",
        list->model, list->tensors.size(), list->values(), args.codec, args.strategy, args.lanes, "ranks",
        "steps", "whole", "bare", "engine", "wakes", "polls", "sleeps", "allocs");
  for (const int world : args.ranks) {
    const Result<nlohmann::json> row = measure(args, *list, world);
    if (!row.ok()) {
      fmt::print(stderr, "bench_engine: {}\n", row.status().what());
      return 1;
    }
    const auto at = [&](const char* key) { return (*row)[key].get<double>(); };
    if (args.json)
      fmt::print("{}\n", row->dump());
    else
      fmt::print("{:>5} {:>9.0f} | {:>8.4f} {:>8.4f} {:>8.4f} | {:>8.1f} {:>8.1f} {:>8.1f} {:>8.2f}\n", world,
                 at("steps_per_round"), at("whole_s"), at("bare_s"), at("own_s"), at("wakes"), at("polls"),
                 at("sleeps"), at("allocations"));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tithe::bench

int main(int argc, char** argv) {
  tithe::bench::Args args;
  CLI::App app("the engine's own cost per step");
  app.add_option("--model", args.model, "one of data/models/, or the path of such a file")
      ->capture_default_str();
  app.add_option("--scale", args.scale, "tensors have this many times fewer values")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--ranks", args.ranks, "worlds to measure")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--lanes", args.lanes, "compute threads per rank")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--pairs", args.pairs, "whole and bare runs in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--steps", args.steps, "of a run, at least")->capture_default_str();
  app.add_option("--codec", args.codec, "a spec")->capture_default_str();
  app.add_option("--strategy", args.strategy, "who sends what to whom")->capture_default_str();
  app.add_flag("--json", args.json, "one object per world");
  CLI11_PARSE(app, argc, argv);
  return tithe::bench::run(args);
}
