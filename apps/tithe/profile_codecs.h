// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long a codec takes, by number of values: what a profile's curves are made of.
#include <functional>
#include <span>
#include <vector>

#include "sim/costs.h"
#include "tithe/spec.h"

namespace tithe::cli {

// Sizes from 256 values to `most`, eight times as many each.
std::vector<std::size_t> profile_sizes(std::size_t most);

// Encode with feedback, store, merge, in seconds of processor time; the median of several runs over data that changes.
// `spread`: a row per number. A codec of several phases has numbers for each, taken with the payloads of two ranks.
Result<sim::CodecCosts> measure_codec(const Spec& spec, std::span<const std::size_t> sizes,
                                      std::vector<double>& spread);

Result<sim::CodecCosts> measure_phases(const Spec& spec, std::span<const std::size_t> sizes,
                                       std::vector<double>& spread);  // of codecs of several phases

// How often a codec runs over so many values: long runs differ less, and a profile is to take less than a minute.
constexpr int profile_runs(std::size_t n) { return n < (std::size_t{1} << 20) ? 5 : 3; }

// The processor time of this thread, in seconds.
double thread_seconds();

// The median of `runs` of work(), each less what `before` took; (third quartile - first) / median goes to `spread`.
double median_seconds(int runs, const std::function<double()>& work, std::vector<double>& spread);

}  // namespace tithe::cli
