// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cases of the codec suite: codec x settings x impl x instruction set x size.
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "support/exact.h"
#include "support/pairs.h"
#include "support/targets.h"
#include "support/values.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"

namespace tithe::conformance {

using harness::Data;
using harness::Extreme;
using harness::extremes;
using harness::first_difference;
using harness::Floats;
using harness::kExtremes;
using harness::OnlyTarget;
using harness::Payload;
using harness::same_bits;
using harness::ulp;

// harness::values() with a cache for one thread: all codecs, paths and tests use the same values, and generating them
// again took a third of these suites' time. An object rather than a function, since argument-dependent lookup would
// find a function of harness too.
inline constexpr auto values = [](Data data, std::size_t n, unsigned seed) -> Floats {
  static std::map<std::tuple<Data, std::size_t, unsigned>, Floats> drawn;
  const auto [at, fresh] = drawn.try_emplace({data, n, seed});
  if (fresh) at->second = harness::values(data, n, seed);
  return at->second;
};

// Both sides of a byte, a vector, a warp, a block of each codec, and something large and odd.
inline constexpr std::size_t kSizes[] = {0,   1,   7,    8,    9,    31,   32,   33,   63,   64,    65,
                                         255, 256, 1023, 1024, 1025, 2047, 2048, 2049, 4097, 66'049};

struct CodecCase {
  const Codec* codec;
  Settings settings;
  std::string settings_name;
  const Impl* impl;
  std::int64_t target;  // one Highway target; 0: the best one
  std::size_t n;
};

inline std::string name_of(const CodecCase& c) {
  std::string s(c.codec->name);
  s += c.settings_name + "_" + std::string(c.impl->name);
  if (c.target != 0) s += std::string("_") + hwy::TargetName(c.target);
  return s + "_" + std::to_string(c.n);
}

// Every codec at its defaults, except: a ratio is large, so that small sizes select many values; layouts and formats
// are the second choice; a literal form is on, if the codec has one.
inline std::vector<CodecCase> all_codec_cases() {
  std::vector<CodecCase> all;
  const auto add = [&](const Codec* codec, const Settings& settings, const std::string& name) {
    for (const Impl& impl : codec->impls) {
      if (!impl.usable(this_machine())) continue;
      const bool is_reference = &impl == &codec->reference();
      std::vector<std::int64_t> targets = {0};
      if (!is_reference) targets = hwy::SupportedAndGeneratedTargets();
      for (const std::int64_t t : targets)
        for (const std::size_t n : kSizes) all.push_back({codec, settings, name, &impl, t, n});
      // The target of the default dispatch: a codec may use an instruction set that others do not use.
      for (const std::size_t n : kSizes)
        if (!is_reference && n > 32) all.push_back({codec, settings, name, &impl, 0, n});
    }
  };
  for (const Codec* codec : all_codecs()) {
    add(codec, defaults(*codec), "");
    Settings much = defaults(*codec);
    for (std::size_t p = 0; p < codec->params.size(); ++p)
      if (codec->params[p].name == "ratio") much.value[p] = 0.25;
    if (!(much == defaults(*codec))) add(codec, much, "_quarter");
    Settings other = defaults(*codec);
    for (std::size_t p = 0; p < codec->params.size(); ++p)
      for (const std::string_view name : {"layout", "format"})
        if (codec->params[p].name == name) other.value[p] = 1;
    if (!(other == defaults(*codec))) add(codec, other, "_other");
    Settings literal = defaults(*codec);
    for (std::size_t p = 0; p < codec->params.size(); ++p)
      for (std::size_t k = 0; k < codec->params[p].choices.size(); ++k)
        if (codec->params[p].choices[k] == "literal") literal.value[p] = static_cast<double>(k);
    if (!(literal == defaults(*codec))) add(codec, literal, "_literal");
  }
  return all;
}

// Limits for sizes with slow cases, and with very slow cases.
inline constexpr std::size_t kSmall = 1000, kLargestOfAll = 5000;

// Small sizes run on every path. Sizes of a thousand and more run on the default dispatch, and two or three of them
// on every path. The largest sizes run on the default dispatch at the codec's defaults, and on one more path per
// setting, which differs between settings. With TITHE_TEST_FULL=1 everything runs.
inline std::vector<CodecCase> codec_cases() {
  std::vector<CodecCase> some, all = all_codec_cases();
  if (harness::full_products()) return all;
  std::size_t turn = 0;
  for (std::size_t first = 0, end = 0; first < all.size(); first = end, ++turn) {
    std::vector<std::size_t> large;  // of one codec in one setting
    std::size_t middle = turn;       // 7 sizes a path: every third of them are others from path to path
    for (end = first; end < all.size() && all[end].codec == all[first].codec &&
                      all[end].settings_name == all[first].settings_name;
         ++end) {
      const CodecCase& one = all[end];
      const bool dispatched =
          one.target == 0 && (one.impl != &one.codec->reference() || one.codec->impls.size() == 1);
      if (one.n <= kSmall || (dispatched && one.n <= kLargestOfAll) ||
          (dispatched && one.settings_name.empty()))
        some.push_back(one);
      else if (one.n > kLargestOfAll)
        large.push_back(end);
      else if (middle++ % 3 == 0)
        some.push_back(one);
    }
    if (!large.empty()) some.push_back(all[large[turn % large.size()]]);
  }
  return some;
}

inline void PrintTo(const CodecCase& c, std::ostream* out) { *out << name_of(c); }

// All kinds of data; three kinds for sizes with very slow cases.
inline std::span<const Data> data_for(std::size_t n) {
  static constexpr Data kFew[] = {Data::kHeavy, Data::kHuge, Data::kTies};
  return n > kLargestOfAll ? std::span<const Data>(kFew) : std::span<const Data>(harness::kData);
}

}  // namespace tithe::conformance
