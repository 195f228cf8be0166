// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs of several phases, seen by one worker alone: what the suites need to look at the last one.
#include <cstdint>
#include <vector>

#include "support/scratch.h"
#include "tithe/seam/codec.h"

namespace tithe::phases {

inline std::uint8_t last_phase(const Codec& codec) {
  return static_cast<std::uint8_t>(codec.phases.size() - 1);
}

// Call::context of the last phase, when `workers` with equal values take part; empty for codecs of one phase, and where
// an earlier encode refuses (the last one then meets a context that its check would not have let through). *finite
// becomes false where the values are reported.
inline std::vector<std::uint8_t> context_of(int workers, const Codec& codec, const Impl& impl, Call call,
                                            const EncodeInput& in, bool* finite = nullptr) {
  std::vector<std::uint8_t> context;
  const ScratchForTest scratch(codec, call.settings, in.n);
  call.scratch = scratch;
  for (std::uint8_t p = 0; p < last_phase(codec); ++p) {
    std::vector<std::uint8_t> payload(codec.phases[p].bound(call.settings, in.n));
    call.phase = p;
    call.context = context;
    const Result<Encoded> done = impl.encode(call, {in.grad, in.residual, nullptr, in.n}, payload);
    if (!done.ok()) return {};
    payload.resize(done->bytes);
    if (finite != nullptr) *finite = *finite && done->finite;
    std::vector<std::uint8_t> combined = payload;
    for (int w = 1; w < workers && codec.phases[p].combines(); ++w) {
      const auto sum = impl.combine(call, in.n, combined, payload, nullptr);
      if (!sum.ok()) return {};
      if (finite != nullptr) *finite = *finite && sum->finite;
    }
    context = std::move(combined);
  }
  return context;
}

// When no other worker takes part.
inline std::vector<std::uint8_t> context_alone(const Codec& codec, const Impl& impl, const Call& call,
                                               const EncodeInput& in) {
  return context_of(1, codec, impl, call, in);
}

}  // namespace tithe::phases
