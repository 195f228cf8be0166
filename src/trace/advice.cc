// SPDX-License-Identifier: Apache-2.0
// Fits the cost model of advice.h to the traced buckets, then evaluates its recurrence for each candidate cap.
#include "trace/advice.h"

#include <algorithm>
#include <cmath>

#include "base/quantile.h"

namespace tithe::trace {
namespace {

constexpr double kMb = 1024.0 * 1024.0;
constexpr double kCaps[] = {1, 2, 5, 10, 25, 50, 100, 200, 400};  // MB
constexpr double kFirstMb = 1;                                    // DDP's first bucket is at most this large
constexpr double kWorthIt = 0.05;  // of the step: a smaller gain gives no advice
constexpr double kAsGood = 0.01;
constexpr double kSpread = 4;

struct Cost {
  double bucket = 0, byte = 0;  // o, c
};

// A bucket and the time of its submission.
struct Ready {
  double at = 0, bytes = 0;
};

// The open time of the recurrence in advice.h.
double open_time(std::span<const Ready> buckets, const Cost& cost, double backward_end) {
  double done = 0;
  for (const Ready& b : buckets) done = std::max(done, b.at) + cost.bucket + cost.byte * b.bytes;
  return std::max(0.0, done - backward_end);
}

// The buckets of one round, with times since the start of backward.
struct Steps {
  std::vector<Ready> handed;  // in the order of submission
  double backward = 0;
};

// Cuts the bytes of a round into buckets of `cap` bytes, with interpolated ready times.
std::vector<Ready> cut(const Steps& s, double cap) {
  double all = 0;
  for (const Ready& b : s.handed) all += b.bytes;
  std::vector<Ready> out;
  double from = 0;
  while (from < all) {
    const double size = std::min(out.empty() ? std::min(cap, kFirstMb * kMb) : cap, all - from);
    const double to = from + size;
    double begin = 0, at = 0, ready = s.handed.back().at;  // segment of the interpolation
    for (const Ready& b : s.handed) {
      if (to <= begin + b.bytes && b.bytes > 0) {
        ready = at + (b.at - at) * (to - begin) / b.bytes;
        break;
      }
      begin += b.bytes;
      at = b.at;
    }
    out.push_back({ready, size});
    from = to;
  }
  return out;
}

// Fits o and c (advice.h).
Cost fit(std::span<const Round> rounds, double min_frame_ns) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0, low = HUGE_VAL, high = 0;
  for (const Round& r : rounds) {
    std::int64_t before = r.buckets.front().handed;
    for (const Bucket& b : r.buckets) {
      const auto bytes = static_cast<double>(b.bytes);
      const auto spent = static_cast<double>(std::max<std::int64_t>(0, b.done - std::max(before, b.handed)));
      before = std::max(before, b.done);
      n += 1;
      x += bytes;
      y += spent;
      xx += bytes * bytes;
      xy += bytes * spent;
      low = std::min(low, bytes);
      high = std::max(high, bytes);
    }
  }
  if (high >= kSpread * low && n * xx > x * x) {
    const double byte = std::max(0.0, (n * xy - x * y) / (n * xx - x * x));
    return {std::max(0.0, (y - byte * x) / n), byte};
  }
  const double bucket = std::min(2 * min_frame_ns, y / n);
  return {bucket, x > 0 ? (y / n - bucket) / (x / n) : 0};
}

}  // namespace

std::optional<Advice> advise(std::span<const Round> rounds, double min_frame_ns) {
  std::vector<Steps> steps;
  std::vector<double> whole;
  double largest = 0;
  for (const Round& r : rounds) {
    if (!r.backward) continue;
    Steps s;
    s.backward = static_cast<double>(r.backward->second - r.backward->first);
    for (const Bucket& b : r.buckets) {
      s.handed.push_back({static_cast<double>(std::max<std::int64_t>(0, b.handed - r.backward->first)),
                          static_cast<double>(b.bytes)});
      largest = std::max(largest, static_cast<double>(b.bytes));
    }
    whole.push_back(static_cast<double>(r.end - r.begin));
    steps.push_back(std::move(s));
  }
  if (steps.empty()) return {};
  const Cost cost = fit(rounds, min_frame_ns);
  const double step = median(whole);
  const auto open_with = [&](double cap) {  // 0: the traced buckets
    std::vector<double> all;
    for (const Steps& s : steps) all.push_back(open_time(cap > 0 ? cut(s, cap) : s.handed, cost, s.backward));
    return median(std::move(all));
  };
  const double now = open_with(0);
  double best = now, best_cap = 0;
  for (const double cap : kCaps) best = std::min(best, open_with(cap * kMb));
  if (now - best < kWorthIt * step) return {};
  for (const double cap : kCaps)
    if (open_with(cap * kMb) <= best + kAsGood * step) best_cap = cap;
  return Advice{.bucket_cap_mb = best_cap,
                .largest_mb = largest / kMb,
                .spared_ns = now - open_with(best_cap * kMb),
                .step_ns = step,
                .bucket_ns = cost.bucket,
                .byte_ns = cost.byte};
}

}  // namespace tithe::trace
