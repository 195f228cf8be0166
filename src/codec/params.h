// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parses and writes the parameters of a spec: `name=value,name=value` after its colon. A codec's own parameters are one
// table; a caller may add another table, as src/feedback/policy.h does for the feedback.
#include <span>
#include <string>
#include <string_view>

#include "tithe/seam/codec.h"

namespace tithe::params {

// Parameters and their values, in the same order.
struct Table {
  std::span<const ParamSpec> params;
  std::span<double> values;
};

// Parses the part of `spec` after its colon. Parameters that it does not name keep their values. kInvalid for a name
// that is in no table or occurs twice, for a value out of range, and for a fraction where ParamSpec::whole; the text
// has the nearest known name, the range, or the nearest whole numbers.
Status parse(const Codec& codec, std::string_view spec, std::span<const Table> tables);

// Appends `name=value` to a spec, unless the value is `fallback`.
void append(std::string& spec, const ParamSpec& param, double value, double fallback);

}  // namespace tithe::params
