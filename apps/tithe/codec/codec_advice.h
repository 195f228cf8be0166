// SPDX-License-Identifier: Apache-2.0
#pragma once
// When to use a codec, from docs/start/choosing.md: tools/lint/choosing.py copies its text to choosing.def. A codec
// that the page does not mention is described by its traits.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tithe/seam/spec.h"

namespace tithe::cli {

// Number of values for which bits and loss are given.
inline constexpr std::size_t kSample = std::size_t{1} << 20;

// One line of advice for these settings. If the page has the codec but not these settings, all its rows for the codec.
// `bits`: per value, for these settings.
std::string when_to_use(const Spec& spec, double bits);

// The results of the study of optimizers: (optimizer, "yes" or "no: by how much").
struct StudyFindings {
  std::vector<std::pair<std::string_view, std::string_view>> by_optimizer;
  bool of_defaults = false;  // the study did not run these settings: the results are for the codec's defaults
};
StudyFindings studied(const Spec& spec);

// The codecs that the study found within noise of fp32 under an optimizer, except codecs that change the momentum of a
// step. kInvalid, with the studied optimizers, for any other optimizer.
Result<std::vector<std::string_view>> within_noise(std::string_view optimizer);

// The share of the energy that one round may lose.
double contraction(const Codec& codec, const Settings& settings);
double contraction(const Codec& codec);

}  // namespace tithe::cli
