// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fixture of the codec suites: one encode or decode of a codec's last phase, with buffers of exact size and
// scratch filled with garbage.
#include <gtest/gtest.h>

#include <algorithm>

#include "codec_case.h"
#include "support/codec_run.h"

namespace tithe::conformance {

using harness::Base;
using harness::EncodeOutput;
using harness::Exact;
using harness::Keep;

// The rounding that Traits::adds_transformed allows.
inline constexpr double kTransformRounding = 0x1p-20;

inline double largest(const Floats& v) {
  double most = 0;
  for (const float x : v) most = std::max(most, std::abs(double{x}));
  return most;
}

inline constexpr Keep kKeeps[] = {Keep::kNothing, Keep::kApart, Keep::kInPlace};

class CodecSuite : public testing::TestWithParam<CodecCase> {
 protected:
  const Codec& codec = *GetParam().codec;
  const Impl& impl = *GetParam().impl;
  const Impl& reference = codec.reference();
  const Phase& phase = codec.phases.back();  // the phase whose payloads decode to values
  const std::size_t n = GetParam().n;
  const OnlyTarget only{GetParam().target};
  Call call = call_of();

  Call call_of() const {
    Call c;
    c.settings = GetParam().settings;
    c.seed = 7;
    c.shared_seed = 8;
    c.round = 3;
    c.tensor = 2;
    c.chunk = 1;
    c.phase = phases::last_phase(codec);
    return c;
  }
  std::size_t bound() const { return phase.bound(call.settings, n); }
  Status check(ByteView p) const { return impl.check(call, n, p); }

  // The call with scratch of the minimum size, filled with garbage.
  template <typename Use>
  auto with_scratch(Use use) {
    const ScratchForTest scratch(codec, call.settings, n);
    Call c = call;
    c.scratch = scratch;
    return use(c);
  }

  // The context from earlier phases does not depend on the values of the test.
  void SetUp() override { agree(1); }
  void agree(int workers) { agree(workers, values(Data::kHeavy, n, 1)); }
  // Computes the context for workers with these values; false if a codec reports them as not finite.
  bool agree(int workers, const Floats& x) {
    if (codec.phases.size() == 1) return true;
    bool finite = true;
    context_ = with_scratch([&](const Call& c) {
      return phases::context_of(workers, codec, reference, c, {x.data(), nullptr, nullptr, n}, &finite);
    });
    call.context = context_;
    return finite;
  }

  EncodeOutput encode(const Impl& by, const Floats& grad, const Floats& before, Keep keep,
                      std::size_t shift = 0) {
    return harness::encode(codec, by, call, grad, before, keep, shift);
  }
  EncodeOutput encode(Data data, unsigned seed = 1, Keep keep = Keep::kNothing) {
    return encode(impl, values(data, n, seed), values(data, n, seed + 1000), keep);
  }
  Status decode(const Impl& by, const std::vector<Payload>& payloads, Base base, const Floats& onto,
                float divide, Floats& out, std::size_t shift = 0) {
    return harness::decode(codec, by, call, payloads, base, onto, divide, out, shift);
  }
  Floats decode_one(const Payload& payload) { return harness::decode_one(codec, impl, call, n, payload); }

 private:
  Payload context_;
};

}  // namespace tithe::conformance
