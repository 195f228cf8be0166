// SPDX-License-Identifier: Apache-2.0
#pragma once
// Verifies that an implementation generated from a program matches the interpreter on seeded values: in bytes,
// residuals, decoded values and Status.
#include <functional>
#include <span>
#include <string_view>

#include "lang/run/interpreter.h"

namespace tithe::lang {

// The functions under test: those of Impl, for one combination. Every encode writes a residual.
struct VerifiedFunctions {
  std::function<Result<Encoded>(std::string_view name, const Call&, const EncodeInput&, Bytes out)> encode;
  std::function<Status(std::string_view name, const Call&, std::span<const ByteView> payloads, const Merge&,
                       std::span<float> out)>
      decode;
};

// Tests `kinds` kinds of values, up to kAllKinds. For a later phase, the context is that of one, three and many
// ranks.
inline constexpr unsigned kAllKinds = 6;
bool matches_interpreter(const VerifiedFunctions& runs, const Combination& of, const Settings& settings,
                         unsigned kinds);
// Likewise against the reference implementation of a single-phase codec, with all kinds of values.
bool matches_reference(const VerifiedFunctions& runs, const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
