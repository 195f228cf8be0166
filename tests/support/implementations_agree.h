// SPDX-License-Identifier: Apache-2.0
#pragma once
// Compares every impl with the reference under any settings and instruction set, on values that most codecs leave
// unspecified and other suites therefore avoid: NaN, Inf, sums that overflow, zeros of both signs in any order.
#include "support/codec_run.h"
#include "support/targets.h"
#include "tithe/seam/catalogue.h"

namespace tithe::harness {

struct Seen {
  std::vector<Payload> payloads;  // of each phase
  Floats residual_out;
  std::vector<Floats> results;  // of several merges
  bool finite = true;
};

// All phases, with the contexts of `workers` workers with equal values; then decodes.
inline Seen see(const Spec& spec, const Impl& impl, const Floats& grad, const Floats& residual, Keep keep,
                int workers) {
  const Codec& codec = *spec.codec;
  const std::size_t n = grad.size();
  const std::uint8_t last = phases::last_phase(codec);
  Seen seen;
  Payload context;
  for (std::uint8_t p = 0; p <= last; ++p) {
    const Call call{.settings = spec.settings, .seed = 5, .phase = p, .context = context};
    const bool reads = keep == Keep::kResidual || keep == Keep::kApart || keep == Keep::kInPlace;
    const Keep now = p == last ? keep : reads ? Keep::kResidual : Keep::kNothing;
    EncodeOutput sent = encode(codec, impl, call, grad, residual, now);
    seen.finite = seen.finite && sent.finite;
    seen.payloads.push_back(sent.payload);
    if (p == last) seen.residual_out = std::move(sent.residual_out);
    const bool once = keep == Keep::kNothing || keep == Keep::kApart;  // the other modes send the same
    if (p == last && once && impl.check(call, n, sent.payload).ok()) {
      for (const std::size_t count : {1U, 3U, 6U})
        for (const float divide : {1.0F, 3.0F})
          for (const Base base : {Base::kNull, Base::kOther}) {
            Floats result(n, 99.0F);
            const std::vector<Payload> payloads(count, sent.payload);
            EXPECT_TRUE(decode(codec, impl, call, payloads, base, grad, divide, result).ok());
            seen.results.push_back(std::move(result));
          }
    }
    Payload combined = sent.payload;
    for (int w = 1; w < workers && codec.phases[p].combines(); ++w)
      combined = combine(impl, call, combined, sent.payload, Floats(n), false).acc;
    context = std::move(combined);
  }
  return seen;
}

inline void expect_impls_agree(const std::string& text, int workers = 1) {
  SCOPED_TRACE(text);
  const Result<Spec> spec = parse_codec(text);
  ASSERT_TRUE(spec.ok()) << spec.status().what();
  const auto hold = [&](const Floats& grad, const Floats& residual) {
    for (const Keep keep : {Keep::kNothing, Keep::kResidualOut, Keep::kApart, Keep::kInPlace}) {
      const Seen want = see(*spec, spec->codec->reference(), grad, residual, keep, workers);
      on_every_target([&] {
        for (const Impl& impl : spec->codec->impls) {
          if (&impl == &spec->codec->reference()) continue;  // the same on all targets, and slow
          SCOPED_TRACE(impl.name);
          const Seen got = see(*spec, impl, grad, residual, keep, workers);
          ASSERT_EQ(got.finite, want.finite);
          ASSERT_TRUE(got.payloads == want.payloads) << name(keep);
          ASSERT_TRUE(same_values(got.residual_out, want.residual_out)) << "residual_out, " << name(keep);
          ASSERT_EQ(got.results.size(), want.results.size());
          for (std::size_t k = 0; k < want.results.size(); ++k)
            ASSERT_TRUE(same_values(got.results[k], want.results[k])) << "decode " << k;
        }
      });
    }
  };
  for (const std::size_t n : {std::size_t{37}, std::size_t{2085}}) {
    for (const Data data : kData) {
      SCOPED_TRACE(name(data));
      hold(values(data, n, 1), values(data, n, 2));
    }
    for (unsigned seed = 0; seed < 3; ++seed)
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(finite ? "odd" : "not finite");
        hold(odd(n, finite, seed), odd(n, finite, seed + 10));
        Floats lone = values(Data::kGaussian, n, 3);
        lone[n - 1 - seed * 16] = finite ? -0.0F : std::numeric_limits<float>::quiet_NaN();
        hold(lone, Floats(n));
      }
  }
}

}  // namespace tithe::harness
