// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check that what was made of a program does what the interpreter does, on seeded values: the same bytes,
// residuals, values and verdicts.
#include <functional>
#include <span>
#include <string_view>

#include "lang/run/interpreter.h"

namespace tithe::lang {

// The functions that are held to it: those of Impl, for one combination. A residual is wanted of every encode.
struct VerifiedFunctions {
  std::function<Result<Encoded>(std::string_view name, const Call&, const EncodeInput&, Bytes out)> encode;
  std::function<Status(std::string_view name, const Call&, std::span<const ByteView> payloads, const Merge&,
                       std::span<float> out)>
      decode;
};

// Looks at so many kinds of values, up to kAllKinds. Behind another phase: under what one, three and many ranks agree
// on.
inline constexpr unsigned kAllKinds = 6;
bool matches_interpreter(const VerifiedFunctions& runs, const Combination& of, const Settings& settings,
                         unsigned kinds);
// The same check against the reference of a codec of one phase, with all kinds of values.
bool matches_reference(const VerifiedFunctions& runs, const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
