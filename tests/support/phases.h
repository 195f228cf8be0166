// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs of several phases with a single worker: sets up the context that tests of the last phase need.
#include <cstdint>
#include <vector>

#include "support/scratch.h"
#include "tithe/seam/codec.h"

namespace tithe::phases {

inline std::uint8_t last_phase(const Codec& codec) {
  return static_cast<std::uint8_t>(codec.phases.size() - 1);
}

// Call::context of the last phase for `workers` workers with equal values; empty for codecs of one phase, and if an
// earlier encode refuses (the last phase then gets a context that its check would have rejected). *finite becomes
// false if the values are reported as not finite.
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

// With a single worker.
inline std::vector<std::uint8_t> context_alone(const Codec& codec, const Impl& impl, const Call& call,
                                               const EncodeInput& in) {
  return context_of(1, codec, impl, call, in);
}

}  // namespace tithe::phases
