// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Plan is a value: what happens to each slice of a bucket, and why. It is the same on every rank (its hash
// travels in every frame), printable and comparable. Today it follows fixed rules from the sizes alone; the
// measuring planner fills the same value.
//
//   covers     parts lie back to back, in order, and cover the bucket
//   aligned    a part starts at a tensor's first value, or inside a tensor larger than part_values
//   small      neighbouring tensors below min_values share one part, sent raw (fp32): codecs do not pay there
#include <cstdint>
#include <string>
#include <vector>

#include "tithe/graph.h"
#include "tithe/spec.h"
#include "tithe/status.h"

namespace tithe {

struct Part {
  std::size_t first = 0;  // offset in the bucket, values
  std::size_t n = 0;      // values
  Spec spec;
  const Strategy* strategy = nullptr;
  std::string why;
  friend bool operator==(const Part&, const Part&) = default;
};

struct Plan {
  std::vector<Part> parts;
  // Everything that ranks must agree on: format version, world, sizes, specs, strategies.
  std::uint64_t hash(int world) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

struct PlanRules {
  Spec spec;
  const Strategy* strategy = nullptr;
  std::size_t min_values = 4096;       // smaller tensors travel raw
  std::size_t part_values = 1U << 22;  // larger tensors are cut into pieces of at most this many values
};

// sizes: values of each tensor of the bucket, in bucket order; zero-size tensors are allowed.
Plan make_plan(std::span<const std::size_t> sizes, const PlanRules& rules);

std::string to_string(const Plan& plan);

}  // namespace tithe
