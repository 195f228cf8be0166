// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the suites of errors run over: every codec of codecs.def in the settings that shape what it loses, inputs of
// every shape, and what arrives of them.
#include <gtest/gtest.h>

#include "codec/draws_for_test.h"
#include "codec_case.h"

namespace tithe::conformance {

using Floats = std::vector<float>;
using draws::Shape;

struct Scratch {
  explicit Scratch(std::size_t bytes)
      : data(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)), std::free) {}
  std::unique_ptr<std::uint8_t, decltype(&std::free)> data;
};

// What arrives of x when one worker sends it alone, through all phases of the codec.
inline Floats arrives(const Codec& codec, const Settings& settings, const Floats& x, std::uint64_t seed) {
  const Scratch scratch(codec.scratch(settings, x.size()));
  Call call;
  call.settings = settings;
  call.seed = seed;
  call.shared_seed = seed + 1;
  call.scratch = {scratch.data.get(), codec.scratch(settings, x.size())};
  const Impl& impl = codec.best(this_machine());
  std::vector<std::uint8_t> context, payload;
  for (std::size_t p = 0; p < codec.phases.size(); ++p) {
    std::swap(context, payload);
    payload.assign(codec.phases[p].bound(settings, x.size()), 0);
    call.phase = static_cast<std::uint8_t>(p);
    call.context = context;
    Result<Encoded> done = impl.encode(call, {x.data(), nullptr, nullptr, x.size()}, payload);
    EXPECT_TRUE(done.ok()) << done.status().what();
    if (!done.ok()) return {};
    payload.resize(done->bytes);
  }
  Floats out(x.size());
  const ByteView view = payload;
  const Status s = impl.decode(call, {&view, 1}, {}, out);
  EXPECT_TRUE(s.ok()) << s.what();
  return out;
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
