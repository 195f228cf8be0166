// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long a codec takes on this machine, by number of values: what a profile's curves are made of.
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "advice/sim/costs.h"
#include "tithe/seam/spec.h"

namespace tithe::sim {

// 64-byte aligned bytes, as Call::scratch wants them.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes)
      : bytes_(bytes),
        p_(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free) {}
  Bytes all() const { return {p_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, void (*)(void*)> p_;
};

// Arbitrary values of roughly normal distribution, mean 0 and deviation 1: the sum of eight uniform draws, without
// the platform's libm. The same on every machine.
std::vector<float> bell_values(std::size_t n, std::uint64_t seed);

// Sizes from 256 values to `most`, eight times as many each.
std::vector<std::size_t> profile_sizes(std::size_t most);

// Encode with feedback, store, merge, in seconds of processor time; the median of several runs over data that changes.
// `spread`: a row per number. A codec of several phases has numbers for each, taken with the payloads of two ranks.
// own: finite gradients of the job that asks; empty: usual ones (gradients.h).
Result<CodecCosts> measure_codec(const Spec& spec, std::span<const std::size_t> sizes,
                                 std::vector<double>& spread, std::span<const float> own = {});

Result<CodecCosts> measure_phases(const Spec& spec, std::span<const std::size_t> sizes,
                                  std::vector<double>& spread,
                                  std::span<const float> own);  // of codecs of several phases

// How often a codec runs over so many values: long runs differ less, and a profile is to take less than a minute.
constexpr int profile_runs(std::size_t n) { return n < (std::size_t{1} << 20) ? 5 : 3; }

// The processor time of this thread, in seconds.
double thread_seconds();

// The median of `runs` of work(), each less what `before` took; (third quartile - first) / median goes to `spread`.
double median_seconds(int runs, const std::function<double()>& work, std::vector<double>& spread);

}  // namespace tithe::sim
