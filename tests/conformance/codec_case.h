// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the codec suite runs over: codec x settings x impl x instruction set x size, and the data.
#include <hwy/targets.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tithe/codec.h"
#include "tithe/spec.h"

namespace tithe::conformance {

// Both sides of a byte, a vector, a warp, a block of each codec, and something large and odd.
inline constexpr std::size_t kSizes[] = {0,   1,   7,    8,    9,    31,   32,   33,   63,   64,     65,
                                         255, 256, 1023, 1024, 1025, 2047, 2048, 2049, 4097, 100'003};

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

// Every codec at its defaults; where it has a ratio at a large one, so that small sizes select much; where it has
// layouts or formats at the second of them; where it has a literal form in that.
inline std::vector<CodecCase> codec_cases() {
  std::vector<CodecCase> all;
  const auto add = [&](const Codec* codec, const Settings& settings, const std::string& name) {
    for (const Impl& impl : codec->impls) {
      if (!impl.usable(this_machine())) continue;
      const bool is_reference = &impl == &codec->reference();
      std::vector<std::int64_t> targets = {0};
      if (!is_reference) targets = hwy::SupportedAndGeneratedTargets();
      for (const std::int64_t t : targets)
        for (const std::size_t n : kSizes) all.push_back({codec, settings, name, &impl, t, n});
      // What dispatch takes by itself: a codec may have an instruction set that the others have not.
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

// Until it is destroyed, run-time dispatch sees this target alone.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

enum class Data { kGaussian, kHeavy, kConstant, kSparse, kDenormal, kHuge, kZeros, kTies };
inline constexpr Data kData[] = {Data::kGaussian, Data::kHeavy, Data::kConstant, Data::kSparse,
                                 Data::kDenormal, Data::kHuge,  Data::kZeros,    Data::kTies};
inline constexpr const char* kDataNames[] = {"gaussian", "heavy", "constant", "sparse",
                                             "denormal", "huge",  "zeros",    "ties"};

// All of them, and three for sizes where each takes its time.
inline std::span<const Data> data_for(std::size_t n) {
  static constexpr Data kFew[] = {Data::kHeavy, Data::kHuge, Data::kTies};
  return n > 5000 ? std::span<const Data>(kFew) : std::span<const Data>(kData);
}

// n finite values whose sums in pairs are finite too.
inline std::vector<float> values(Data data, std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) {
    const float a = normal(rng);
    const auto dice = static_cast<unsigned>(rng());
    switch (data) {
      case Data::kGaussian:
        x = 1e-3F * a;
        break;
      case Data::kHeavy:
        x = a * std::exp(4.0F * normal(rng));
        break;
      case Data::kConstant:
        x = -0.375F;
        break;
      case Data::kSparse:
        x = dice % 64 == 0 ? a : 0.0F;
        break;
      case Data::kDenormal:
        x = a * 1e-39F;
        break;
      case Data::kHuge:
        x = (dice & 1U ? 1.0F : -1.0F) * (dice & 2U ? 1.6e38F : 1e5F * a);
        break;
      case Data::kZeros:
        x = dice & 1U ? 0.0F : -0.0F;
        break;
      case Data::kTies:
        x = 0.25F * static_cast<float>(static_cast<int>(dice % 5) - 2);
        break;
    }
  }
  return v;
}

// Finite values at which sums overflow and roundings vanish. A codec may report them, so they are not among kData.
//   top      all at 3e38, as no two of which add up to a float
//   mixed    both signs at the top, where some sums fit and some do not; among small ones
//   lone     one at the top among ordinary ones
//   third    1.2e38: two add up to a float, three do not
//   bottom   the smallest floats there are: all sums are floats
enum class Extreme { kTop, kMixed, kLone, kThird, kBottom };
inline constexpr Extreme kExtremes[] = {Extreme::kTop, Extreme::kMixed, Extreme::kLone, Extreme::kThird,
                                        Extreme::kBottom};
inline constexpr const char* kExtremeNames[] = {"top", "mixed", "lone", "third", "bottom"};

inline std::vector<float> extremes(Extreme kind, std::size_t n, unsigned seed) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::min();
  constexpr float kTops[] = {kMost, -kMost, 3e38F, -3e38F, kMost / 2, -1.2e38F, 1.0F, 0.0F, -0.0F, -1e-40F};
  constexpr float kBottoms[] = {1e-45F, -1e-45F, 1e-40F, -1e-39F, kLeast, -kLeast, 2 * kLeast, 0.0F, -0.0F};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const std::size_t lone = n == 0 ? 0 : rng() % n;
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    switch (kind) {
      case Extreme::kTop:
        v[i] = 3e38F;
        break;
      case Extreme::kMixed:
        v[i] = kTops[rng() % std::size(kTops)];
        break;
      case Extreme::kLone:
        v[i] = i == lone ? -kMost : normal(rng);
        break;
      case Extreme::kThird:
        v[i] = 1.2e38F;
        break;
      case Extreme::kBottom:
        v[i] = kBottoms[rng() % std::size(kBottoms)];
        break;
    }
  }
  return v;
}

// Distance to the next float away from zero, at least the smallest denormal.
inline float ulp(float v) {
  const float a = std::min(std::abs(v), std::numeric_limits<float>::max());
  return a - std::nextafter(a, 0.0F) + std::numeric_limits<float>::denorm_min();
}

// Bytes or floats in a heap block of exactly their size, so that a sanitizer sees the first step outside;
// `shift` elements of T further, so that vectors do not fall on their natural places.
template <typename T>
class Exact {
 public:
  explicit Exact(std::size_t n, std::size_t shift = 0)
      : n_(n), shift_(shift), data_(std::make_unique<T[]>(n + shift)) {}
  Exact(const T* from, std::size_t n, std::size_t shift = 0) : Exact(n, shift) {
    if (n != 0) std::memcpy(data(), from, n * sizeof(T));
  }
  T* data() { return data_.get() + shift_; }
  std::span<T> span() { return {data(), n_}; }

 private:
  std::size_t n_;
  std::size_t shift_;
  std::unique_ptr<T[]> data_;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace tithe::conformance
