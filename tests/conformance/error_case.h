// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cases of the error suites: every codec of codecs.def in the settings that affect its loss, inputs of every
// distribution, and the decoded values.
#include <gtest/gtest.h>

#include "codec_case.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {

using draws::Shape;

// The decoded values of x for a single worker, through all phases of the codec.
inline Floats arrives(const Codec& codec, const Settings& settings, const Floats& x, std::uint64_t seed) {
  Call call{.settings = settings, .seed = seed, .shared_seed = seed + 1};
  const Impl& impl = codec.best(this_machine());
  const Payload agreed = phases::context_alone(codec, impl, call, {x.data(), nullptr, nullptr, x.size()});
  call.phase = phases::last_phase(codec);
  call.context = agreed;
  const harness::EncodeOutput sent = harness::encode(codec, impl, call, x, {}, harness::Keep::kNothing);
  return harness::decode_one(codec, impl, call, x.size(), sent.payload);
}

struct ErrorCase {
  const Codec* codec;
  Settings settings;
  std::string name;
};

inline std::vector<ErrorCase> error_cases() {
  std::vector<ErrorCase> all;
  for (const Codec* codec : all_codecs()) {
    all.push_back({codec, defaults(*codec), std::string(codec->name)});
    for (std::size_t p = 0; p < codec->params.size(); ++p) {
      const ParamSpec& param = codec->params[p];
      if (param.name == "values")  // each way to write a value
        for (std::size_t form = 0; form < param.choices.size(); ++form) {
          ErrorCase other = {codec, defaults(*codec),
                             std::string(codec->name) + "_" + std::string(param.choices[form])};
          other.settings.value[p] = static_cast<double>(form);
          all.push_back(other);
        }
      const auto also = [&](const char* what, double value) {
        if (value == param.fallback) return;
        ErrorCase other = {codec, defaults(*codec), std::string(codec->name) + what};
        other.settings.value[p] = value;
        all.push_back(other);
      };
      if (param.name == "ratio") also("_more", 0.25);
      if (param.name == "bits") also("_fewest_bits", param.low);
      if (param.name == "bits") also("_most_bits", param.high);
      if (param.name == "norm") also("_l2", param.high);
    }
  }
  return all;
}

}  // namespace tithe::conformance
