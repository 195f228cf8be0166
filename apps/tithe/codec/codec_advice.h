// SPDX-License-Identifier: Apache-2.0
#pragma once
// When to take a codec, as docs/start/choosing.md says it: its words come through choosing.def, which
// tools/lint/choosing.py writes. A codec that the page does not speak of is described by its traits.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tithe/seam/spec.h"

namespace tithe::cli {

inline constexpr std::size_t kSample = std::size_t{1} << 20;  // values over which bits and loss are told

// One line: for these settings; for those that the page does not name, the rows of all settings that it names. bits:
// per value, as the spec stands.
std::string when_to_use(const Spec& spec, double bits);

// The study of optimizers' findings: (optimizer, "yes" or "no: by how much").
struct StudyFindings {
  std::vector<std::pair<std::string_view, std::string_view>> by_optimizer;
  bool of_defaults = false;  // these settings were not run: of the codec's defaults
};
StudyFindings studied(const Spec& spec);

// Codecs that this study found within noise of fp32 under an optimizer, but for those that change the step's momentum.
// kInvalid for an optimizer that it did not look at, with those that it did.
Result<std::vector<std::string_view>> within_noise(std::string_view optimizer);

// The part of the energy that one round may lose.
double contraction(const Codec& codec, const Settings& settings);
double contraction(const Codec& codec);

}  // namespace tithe::cli
