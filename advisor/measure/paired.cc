// SPDX-License-Identifier: Apache-2.0
// Spinning, pinned threads run kernel and reference in pairs. A pair counts only if no thread was preempted.
#include "advisor/measure/paired.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>

#include "base/quantile.h"
#include "base/rng.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kMaxTries = 6;  // pairs tried per kept pair, since other processes may disturb some

long involuntary_switches() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_nivcsw;
}

void pin(int thread) {
  static const cpu_set_t kAllowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  int skip = thread % std::max(1, CPU_COUNT(&kAllowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &kAllowed) && skip-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

// Threads that run a step together; the caller is thread 0. A step is timed from the common start to the last end.
class WorkerPool {
 public:
  WorkerPool(int threads, std::function<void(int thread, int step)> work)
      : size_(threads), work_(std::move(work)) {
    pin(0);
    for (int t = 1; t < threads; ++t) others_.emplace_back([this, t] { loop(t); });
    // New threads start on this thread's core. With a real-time priority they can leave it only while this thread
    // yields.
    while (pinned_.load() != threads - 1) std::this_thread::yield();
  }
  ~WorkerPool() {
    step_ = kStop;
    go_.fetch_add(1, std::memory_order_release);
    for (std::thread& t : others_) t.join();
  }

  struct Timed {
    double seconds;
    bool alone;
  };
  Timed run(int step) {
    step_ = step;
    done_.store(1, std::memory_order_relaxed);
    disturbed_.store(false, std::memory_order_relaxed);
    const auto begin = std::chrono::steady_clock::now();
    go_.fetch_add(1, std::memory_order_release);
    one(0, step);
    while (done_.load(std::memory_order_acquire) != size_) {
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return {took.count(), !disturbed_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr int kStop = -1;

  void one(int thread, int step) {
    const long before = involuntary_switches();
    work_(thread, step);
    if (involuntary_switches() != before) disturbed_.store(true, std::memory_order_relaxed);
  }
  void loop(int thread) {
    pin(thread);
    pinned_.fetch_add(1);
    for (int seen = 0;;) {
      while (go_.load(std::memory_order_acquire) == seen) {
      }
      ++seen;
      if (step_ == kStop) return;
      one(thread, step_);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  const int size_;
  std::function<void(int, int)> work_;
  std::vector<std::thread> others_;
  int step_ = 0;  // written before go_ is incremented
  std::atomic<int> pinned_{0};
  std::atomic<int> go_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> disturbed_{false};
};

}  // namespace

template <typename T>
Buffer<T>::Buffer(std::size_t n) : n_(n) {
  const std::size_t bytes = (std::max(n * sizeof(T), std::size_t{1}) + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, bytes);
  if (p == nullptr) throw std::bad_alloc();
  madvise(p, bytes, MADV_HUGEPAGE);
  std::memset(p, 0, bytes);
  data_.reset(static_cast<T*>(p));
}
template class Buffer<float>;
template class Buffer<std::uint8_t>;

void fill_values(std::span<float> out, float scale, std::uint64_t draw) {
  constexpr std::size_t kPool = std::size_t{1} << 21;
  constexpr std::size_t kRun = 2000;  // values copied at once; not a multiple of any block size
  static const std::vector<float> kValues = [] {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> v(kPool + kRun);
    for (float& x : v) x = normal(rng) * normal(rng);
    return v;
  }();
  for (std::size_t i = 0; i < out.size(); i += kRun) {
    const std::uint64_t pick = mix64(draw ^ mix64(i + 1));
    const float s = pick >> 63 ? scale : -scale;
    const float* from = &kValues[pick % kPool];
    const std::size_t len = std::min(kRun, out.size() - i);
    for (std::size_t k = 0; k < len; ++k) out[i + k] = s * from[k];
  }
}

// Alternates the order of the two, until enough pairs were undisturbed.
Outcome in_pairs(std::size_t n, const Options& options, const PairedWork& work) {
  enum Step { kMake, kFresh, kRun };
  bool of_kernel = true;  // written between steps only, like `draw`
  std::uint64_t draw = 1;
  WorkerPool pool(options.threads, [&](int thread, int step) {
    if (step == kMake)
      work.make(thread);
    else if (step == kFresh)
      work.fresh(thread, of_kernel, draw);
    else
      work.run(thread, of_kernel);
  });
  pool.run(kMake);
  const auto timed = [&](bool kernel) {
    of_kernel = kernel;
    ++draw;
    pool.run(kFresh);
    return pool.run(kRun);
  };
  timed(true);  // first touch of code and payload pages
  timed(false);
  std::vector<double> ratio, kernel_seconds, reference_seconds;
  Outcome out;
  for (; out.tried < kMaxTries * options.rounds && out.kept < options.rounds; ++out.tried) {
    if (options.watch) options.watch(out.kept);
    const bool kernel_first = out.tried % 2 == 0;
    const WorkerPool::Timed a = timed(kernel_first);
    const WorkerPool::Timed b = timed(!kernel_first);
    if (!a.alone || !b.alone) continue;
    const double k = kernel_first ? a.seconds : b.seconds;
    const double r = kernel_first ? b.seconds : a.seconds;
    kernel_seconds.push_back(k);
    reference_seconds.push_back(r);
    ratio.push_back(r / k);
    ++out.kept;
  }
  if (out.kept == 0) return out;
  const double bytes = 4e-9 * static_cast<double>(n);
  out.kernel_gbs = bytes / quantile(kernel_seconds, 0.5);
  out.reference_gbs = bytes / quantile(reference_seconds, 0.5);
  out.ratio = quantile(ratio, 0.5);
  out.low = quantile(ratio, 0.25);
  out.high = quantile(ratio, 0.75);
  return out;
}

// Each thread has its own case with n / threads values.
Outcome measure(const Row& row, const Options& options) {
  std::vector<std::unique_ptr<Case>> cases(static_cast<std::size_t>(options.threads));
  const auto of = [&](int thread) -> std::unique_ptr<Case>& {
    return cases[static_cast<std::size_t>(thread)];
  };
  Outcome out = in_pairs(
      row.n, options,
      {.make = [&](int thread) { of(thread) = row.make(row.n / static_cast<std::size_t>(options.threads)); },
       .fresh =
           [&](int thread, bool, std::uint64_t draw) {
             of(thread)->fresh(mix64(draw * 64 + static_cast<std::uint64_t>(thread)));
           },
       .run = [&](int thread, bool kernel) { kernel ? of(thread)->kernel() : of(thread)->reference(); }});
  out.note = cases[0]->note();
  return out;
}

}  // namespace tithe::bench
