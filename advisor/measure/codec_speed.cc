// SPDX-License-Identifier: Apache-2.0
// Measures codecs with one phase in CPU time, with data that changes between runs.
#include "advisor/measure/codec_speed.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <functional>

#include "advisor/measure/gradients.h"
#include "base/finite.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "codec/typical.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

constexpr std::size_t kMinValues = 256;
constexpr double kMinRun = 200e-6;  // seconds per run: small tensors are encoded many times
constexpr std::size_t kMaxPlaces = 64;

}  // namespace

std::vector<float> bell_values(std::size_t n, std::uint64_t seed) {
  const std::uint64_t key = rng_key(seed, 0, 0, 0, 0);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::int32_t sum = 0;  // eight draws of 16 bits, each with variance 2^32 / 12
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t r = draw32(key, static_cast<std::uint32_t>(4 * i + k));
      sum += static_cast<std::int32_t>(r & 0xffff) + static_cast<std::int32_t>(r >> 16) - 65535;
    }
    values[i] = static_cast<float>(sum) / 53509.6F;  // sqrt(8 / 12) * 65536
  }
  return values;
}

std::vector<float> synthetic_gradients(std::size_t n, std::uint64_t seed) {
  std::vector<float> values = bell_values(n, seed);
  for (float& v : values) v *= static_cast<float>(codec::kDefaultDeviation);
  return values;
}

// An odd seed starts in the middle, so two seeds give different values.
std::vector<float> gradients_like(std::span<const float> own, std::size_t n, std::uint64_t seed) {
  if (own.empty()) return synthetic_gradients(n, seed);
  std::vector<float> values(n);
  for (std::size_t i = 0, at = seed % 2 * (own.size() / 2); i < n; ++i, ++at)
    values[i] = own[at % own.size()];
  return values;
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::size_t> profile_sizes(std::size_t most) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = kMinValues; n < most; n *= 8) sizes.push_back(n);
  sizes.push_back(std::max(most, kMinValues));
  return sizes;
}

double median_seconds(int runs, const std::function<double()>& work, std::vector<double>& spread) {
  std::vector<double> all;
  for (int k = 0; k < runs; ++k) all.push_back(work());
  const double middle = median(all);
  if (middle > 0) spread.push_back((quantile(all, 0.75) - quantile(all, 0.25)) / middle);
  return middle;
}

double seconds_per_call(std::size_t n, const std::function<void()>& work, std::vector<double>& spread) {
  const auto seconds = [&](int times) {
    const double begin = thread_seconds();
    for (int k = 0; k < times; ++k) work();
    return (thread_seconds() - begin) / times;
  };
  const int times = std::clamp(static_cast<int>(kMinRun / std::max(seconds(1), 1e-7)), 1, 2000);
  return median_seconds(
      n < (std::size_t{1} << 20) ? 5 : 3, [&] { return seconds(times); }, spread);
}

Result<CodecCosts> measure_codec(const Spec& spec, std::span<const std::size_t> sizes,
                                 std::vector<double>& spread, std::span<const float> own) {
  const Codec& codec = *spec.codec;
  prepare(spec);
  if (codec.phases.size() != 1) return measure_phases(spec, sizes, spread, own);
  const Impl& impl = codec.best(this_machine());
  const std::size_t most = sizes.back();
  // As in training, consecutive runs use different gradients: they cycle through places along these arrays. Two
  // gradients keep the branch predictor from learning one. Two residuals: one is read and one is written.
  const std::vector<float> gradients[] = {gradients_like(own, most, 1), gradients_like(own, most, 2)};
  std::vector<float> residuals[2] = {std::vector<float>(most), std::vector<float>(most)}, out(most);
  CodecCosts costs;
  double payload_bytes = 0, bound_bytes = 0;
  for (const std::size_t n : sizes) {
    const std::size_t bound = codec.phases[0].bound(spec.settings, n);
    const std::size_t places = std::clamp<std::size_t>(most / n, 1, kMaxPlaces);
    const Scratch scratch(codec.scratch(spec.settings, n));
    const std::size_t memory_bytes = codec.memory != nullptr ? codec.memory(spec.settings, n) : 0;
    std::vector<std::vector<std::uint8_t>> payloads(places, std::vector<std::uint8_t>(bound));
    std::vector<std::vector<std::uint8_t>> memories(places, std::vector<std::uint8_t>(memory_bytes));
    std::vector<std::uint8_t> next_memory(memory_bytes);
    std::vector<std::size_t> bytes(places);
    Call call{.settings = spec.settings, .scratch = scratch.all()};
    const bool feedback = !codec.traits.lossless && spec.feedback.kind != Feedback::kNone;
    std::size_t turn = 0;  // selects the place, and counts the passes over all places
    Status status;
    const auto encode = [&] {
      const std::size_t place = turn % places, round = turn++ / places;
      call.round = static_cast<std::uint32_t>(round);
      call.memory = memories[place];
      const EncodeInput in{gradients[round % 2].data() + place * n,
                           feedback ? residuals[round % 2].data() + place * n : nullptr,
                           feedback ? residuals[(round + 1) % 2].data() + place * n : nullptr, n};
      const Result<Encoded> e = impl.encode(call, in, payloads[place]);
      if (e.ok())
        bytes[place] = e->bytes;
      else if (status.ok())
        status = e.status();
    };
    const auto decode = [&](bool merge) {
      const std::size_t place = turn++ % places;
      const ByteView whole = ByteView(payloads[place]).first(bytes[place]);
      const std::span<float> values = std::span(out).subspan(place * n, n);
      call.memory = memories[place];
      call.next_memory = merge ? Bytes{} : Bytes(next_memory);
      Merge into{.base = merge ? values.data() : nullptr};
      if (!merge) into.divide = 2;  // a result of a round: the mean, with the check for finite values
      Status s = impl.decode(call, std::span(&whole, 1), into, values);
      if (s.ok() && !merge && !all_finite(values)) s = Status(Code::kCorrupt, "a result is not finite");
      if (!s.ok() && status.ok()) status = s;
      call.next_memory = {};
    };
    const auto add = [&](Curve& curve, const std::function<void()>& what) {
      curve.points.emplace_back(static_cast<double>(n), seconds_per_call(n, what, spread));
    };
    for (std::size_t k = 0; k < 2 * places; ++k) encode();
    add(costs.encode, encode);
    add(costs.store, [&] { decode(false); });
    add(costs.merge, [&] { decode(true); });
    if (!status.ok()) return Status(status.code(), fmt::format("{}: {}", to_string(spec), status.what()));
    payload_bytes += static_cast<double>(bytes[0]);
    bound_bytes += static_cast<double>(bound);
  }
  costs.typical = !codec.traits.fixed_size && bound_bytes > 0 ? payload_bytes / bound_bytes : 1;
  return costs;
}

}  // namespace tithe::sim
