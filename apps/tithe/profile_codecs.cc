// SPDX-License-Identifier: Apache-2.0
#include "profile_codecs.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "one_shot.h"

namespace tithe::cli {
namespace {

constexpr std::size_t kLeast = 256;
constexpr double kLeastRun = 200e-6;  // seconds of a run: many encodes of a small tensor
constexpr int kRuns = 5;

}  // namespace

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::size_t> profile_sizes(std::size_t most) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = kLeast; n < most; n *= 8) sizes.push_back(n);
  sizes.push_back(std::max(most, kLeast));
  return sizes;
}

double median_seconds(int runs, const std::function<double()>& work, std::vector<double>& spread) {
  std::vector<double> all;
  for (int k = 0; k < runs; ++k) all.push_back(work());
  std::sort(all.begin(), all.end());
  const auto at = [&](double q) { return all[static_cast<std::size_t>(std::lround(q * (runs - 1)))]; };
  if (at(0.5) > 0) spread.push_back((at(0.75) - at(0.25)) / at(0.5));
  return at(0.5);
}

Result<sim::CodecCosts> measure_codec(const Spec& spec, std::span<const std::size_t> sizes,
                                      std::vector<double>& spread) {
  const Codec& codec = *spec.codec;
  if (codec.phases.size() != 1) return measure_phases(spec, sizes, spread);
  const Impl& impl = codec.best(this_machine());
  const std::size_t most = sizes.back();
  // Two gradients in turn, so that no branch learns one by heart.
  const std::vector<float> gradients[] = {bell_values(most, 1), bell_values(most, 2)};
  std::vector<float> residual(most), out(most);
  sim::CodecCosts costs;
  double payload_bytes = 0, bound_bytes = 0;
  for (const std::size_t n : sizes) {
    const std::size_t bound = codec.phases[0].bound(spec.settings, n);
    std::vector<std::uint8_t> payload(bound);
    const Scratch scratch(codec.scratch(spec.settings, n));
    std::vector<std::uint8_t> memory(codec.memory != nullptr ? codec.memory(spec.settings, n) : 0);
    std::vector<std::uint8_t> next_memory(memory.size());
    Call call{.settings = spec.settings, .scratch = scratch.all(), .memory = memory};
    const bool feedback = !codec.traits.lossless && spec.feedback.kind != Feedback::kNone;
    std::size_t bytes = 0;
    Status status;
    const auto encode = [&] {
      ++call.round;
      const Carry in{gradients[call.round % 2].data(), feedback ? residual.data() : nullptr,
                     feedback ? residual.data() : nullptr, n};
      const Result<Encoded> e = impl.encode(call, in, payload);
      if (e.ok())
        bytes = e->bytes;
      else if (status.ok())
        status = e.status();
    };
    const auto decode = [&](bool merge) {
      const ByteView whole = ByteView(payload).first(bytes);
      const std::span<const ByteView> payloads(&whole, 1);
      call.next_memory = merge ? Bytes{} : Bytes(next_memory);
      if (const Status s =
              impl.decode(call, payloads, {.base = merge ? out.data() : nullptr}, std::span(out).first(n));
          !s.ok() && status.ok())
        status = s;
      call.next_memory = {};
    };
    // What is short is done often enough that the clock can tell.
    const auto timed = [&](const auto& what) {
      double begin = thread_seconds();
      what();
      const int times =
          std::clamp(static_cast<int>(kLeastRun / std::max(thread_seconds() - begin, 1e-7)), 1, 2000);
      return median_seconds(
          kRuns,
          [&] {
            begin = thread_seconds();
            for (int k = 0; k < times; ++k) what();
            return (thread_seconds() - begin) / times;
          },
          spread);
    };
    const auto add = [&](sim::Curve& curve, double seconds) {
      curve.points.emplace_back(static_cast<double>(n), seconds);
    };
    add(costs.encode, timed(encode));
    add(costs.store, timed([&] { decode(false); }));
    add(costs.merge, timed([&] { decode(true); }));
    if (!status.ok()) return Status(status.code(), fmt::format("{}: {}", to_string(spec), status.what()));
    payload_bytes += static_cast<double>(bytes);
    bound_bytes += static_cast<double>(bound);
  }
  if (!codec.traits.fixed_size && bound_bytes > 0) costs.typical = payload_bytes / bound_bytes;
  return costs;
}

}  // namespace tithe::cli
