// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fast twins beside their reference under any settings, on every instruction set, on values that the suites keep away
// from since most codecs say nothing of them: NaN, Inf, sums that overflow, zeros of both signs in any order.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/finite.h"
#include "codec/scratch_for_test.h"
#include "conformance/codec_case.h"
#include "phases.h"
#include "tithe/spec.h"

namespace tithe::twins {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

struct Seen {
  std::vector<Payload> payloads;  // of each phase
  Floats left;
  std::vector<Floats> results;  // of several merges
  bool finite = true;
};

// Bit for bit, but for what a NaN carries.
inline bool same(const Floats& a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return a.size() == b.size();
}

enum class Keep { kNothing, kLeft, kApart, kInPlace };
constexpr Keep kKeeps[] = {Keep::kNothing, Keep::kLeft, Keep::kApart, Keep::kInPlace};

// All phases, the context of the later ones being that of `workers` with equal values; then decodes.
inline Seen run(const Spec& spec, const Impl& impl, const Floats& grad, Floats residual, Keep keep,
                int workers) {
  const Codec& codec = *spec.codec;
  const std::size_t n = grad.size();
  Seen seen;
  seen.left.assign(n, 99.0F);
  Payload context;
  for (std::uint8_t p = 0; p <= phases::last_phase(codec); ++p) {
    Call call;
    call.settings = spec.settings;
    call.seed = 5;
    call.phase = p;
    call.context = context;
    const ScratchForTest scratch(codec, call.settings, n);
    call.scratch = scratch;
    const bool last = p == phases::last_phase(codec);
    Carry carry{grad.data(), nullptr, nullptr, n};
    if (keep == Keep::kApart || keep == Keep::kInPlace) carry.residual = residual.data();
    if (last && (keep == Keep::kLeft || keep == Keep::kApart)) carry.left = seen.left.data();
    if (last && keep == Keep::kInPlace) carry.left = residual.data();
    Payload out(codec.phases[p].bound(call.settings, n));
    const Result<Encoded> done = impl.encode(call, carry, out);
    EXPECT_TRUE(done.ok()) << done.status().what();
    if (!done.ok()) return seen;
    seen.finite = seen.finite && done->finite;
    out.resize(done->bytes);
    seen.payloads.push_back(out);
    if (last && keep == Keep::kInPlace) seen.left = residual;
    if (last && codec.phases[p].check(call.settings, n, out).ok()) {
      const std::vector<ByteView> views(6, out);
      for (const std::size_t count : {1U, 3U, 6U})
        for (const float divide : {1.0F, 3.0F})
          for (const bool onto : {false, true}) {
            Floats result(n, 99.0F);
            const Merge how{onto ? grad.data() : nullptr, divide};
            EXPECT_TRUE(impl.decode(call, std::span(views).first(count), how, result).ok());
            seen.results.push_back(result);
          }
    }
    Payload combined = out;
    for (int w = 1; w < workers && codec.phases[p].combine != nullptr; ++w)
      EXPECT_TRUE(codec.phases[p].combine(call, n, combined, out, nullptr).ok());
    context = std::move(combined);
  }
  return seen;
}

// A few of the floats that there are, most of them odd.
inline Floats odd(std::size_t n, bool finite, unsigned seed) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Floats pool = {0.0F,  -0.0F,     1e-45F, -1e-45F, 1e-39F, 1.0F,
                       -1.0F, kMost / 2, -kMost, kInf,    -kInf,  std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 rng(seed);
  Floats v(n);
  for (float& x : v) x = pool[rng() % (finite ? pool.size() - 3 : pool.size())];
  return v;
}

inline void expect_same(const std::string& text, int workers = 1) {
  SCOPED_TRACE(text);
  const Result<Spec> spec = parse_spec(text);
  ASSERT_TRUE(spec.ok()) << spec.status().what();
  std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  targets.push_back(
      0);  // what dispatch takes by itself: some have an instruction set that the others have not
  const auto hold = [&](const Floats& grad, const Floats& residual) {
    for (const Keep keep : kKeeps) {
      const Seen want = run(*spec, spec->codec->reference(), grad, residual, keep, workers);
      for (const std::int64_t target : targets)
        for (const Impl& impl : spec->codec->impls) {
          const conformance::OnlyTarget only(target);
          SCOPED_TRACE(std::string(impl.name) + " " + (target == 0 ? "best" : hwy::TargetName(target)));
          const Seen got = run(*spec, impl, grad, residual, keep, workers);
          ASSERT_EQ(got.finite, want.finite);
          ASSERT_TRUE(got.payloads == want.payloads) << "keep " << static_cast<int>(keep);
          ASSERT_TRUE(same(got.left, want.left)) << "left, keep " << static_cast<int>(keep);
          ASSERT_EQ(got.results.size(), want.results.size());
          for (std::size_t k = 0; k < want.results.size(); ++k)
            ASSERT_TRUE(same(got.results[k], want.results[k])) << "decode " << k;
        }
    }
  };
  for (const std::size_t n : {std::size_t{37}, std::size_t{2085}}) {
    for (const conformance::Data data : conformance::kData) {
      SCOPED_TRACE(conformance::kDataNames[static_cast<int>(data)]);
      hold(conformance::values(data, n, 1), conformance::values(data, n, 2));
    }
    for (unsigned seed = 0; seed < 3; ++seed)
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(finite ? "odd" : "not finite");
        hold(odd(n, finite, seed), odd(n, finite, seed + 10));
        Floats lone = conformance::values(conformance::Data::kGaussian, n, 3);
        lone[n - 1 - seed * 16] = finite ? -0.0F : std::numeric_limits<float>::quiet_NaN();
        hold(lone, Floats(n));
      }
  }
}

}  // namespace tithe::twins
