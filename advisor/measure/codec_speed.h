// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures the time of a codec on this machine by number of values, for the curves of a profile.
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "advisor/sim/costs.h"
#include "tithe/seam/spec.h"

namespace tithe::sim {

// 64-byte aligned memory, as Call::scratch requires.
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

// Reproducible values with a roughly normal distribution, mean 0 and deviation 1: the sum of eight uniform draws.
// Independent of the platform's libm, so the same on every machine.
std::vector<float> bell_values(std::size_t n, std::uint64_t seed);

// Sizes from 256 values to `most`, each eight times the previous one.
std::vector<std::size_t> profile_sizes(std::size_t most);

// Encode with feedback, store and merge, in seconds of CPU time: the median of several runs over changing data. Appends
// the dispersion of each number to `spread`. A codec with several phases gets numbers for each phase, measured with the
// payloads of two ranks. `own`: finite gradients of the job; empty: synthetic ones (gradients.h).
Result<CodecCosts> measure_codec(const Spec& spec, std::span<const std::size_t> sizes,
                                 std::vector<double>& spread, std::span<const float> own = {});

// For codecs with several phases.
Result<CodecCosts> measure_phases(const Spec& spec, std::span<const std::size_t> sizes,
                                  std::vector<double>& spread, std::span<const float> own);

// The CPU time of one call of work() on n values. Short work is repeated until the clock's resolution suffices; many
// values take fewer runs, because long runs vary less and a profile should take less than a minute.
double seconds_per_call(std::size_t n, const std::function<void()>& work, std::vector<double>& spread);

// The CPU time of this thread, in seconds.
double thread_seconds();

// The median of `runs` results of work(). Appends (third quartile - first quartile) / median to `spread`.
double median_seconds(int runs, const std::function<double()>& work, std::vector<double>& spread);

}  // namespace tithe::sim
