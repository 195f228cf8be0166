// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands after the colon of a spec, `name=value,name=value`, read into tables of parameters and written from them.
// A codec's own parameters are one table; whoever has others to put beside them gives another (src/carry/policy.h).
#include <span>
#include <string>
#include <string_view>

#include "tithe/codec.h"

namespace tithe::params {

// Parameters, and where their values go: as many, in the same order.
struct Table {
  std::span<const ParamSpec> params;
  std::span<double> values;
};

// Reads all of `spec` that follows its colon; values that are not named stay as they are. Every name stands in one of
// the tables, at most once in the text. kInvalid, with the nearest known name or the allowed range in the text.
Status parse(const Codec& codec, std::string_view spec, std::span<const Table> tables);

// Appends `name=value` to a spec, unless the value is `fallback`.
void append(std::string& spec, const ParamSpec& param, double value, double fallback);

}  // namespace tithe::params
