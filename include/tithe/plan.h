// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Plan is a value: what happens to each slice of a bucket, and why. It is the same on every rank (its hash
// travels in every frame), printable and comparable. Today it follows fixed rules from the sizes alone; the
// measuring planner fills the same value.
//
//   covers     parts lie back to back, in order, and cover the bucket
//   aligned    a part starts at a tensor's first value, or inside a tensor larger than part_values
//   shaped     a codec's parameter `cols`, where it is 0, becomes the values per row of the tensor, and that is cut
//              between rows: what a codec finds in a matrix is in its rows and columns
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
  bool scheduled = false;  // its ratio is the one that the session's schedule moves
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

// sizes: values of each tensor of the bucket, in bucket order; zero-size tensors are allowed. rows: values per row of
// each, 0 where that is not known; or none at all.
Plan make_plan(std::span<const std::size_t> sizes, const PlanRules& rules,
               std::span<const std::size_t> rows = {});

// The codec's parameter `cols`; 0 where it has none or it is not set.
std::size_t cols_of(const Spec& spec);
// Where n values are cut for the k-th time of `pieces`: 0 is their start, `pieces` their end. Between rows of `cols`
// values, if there are several.
std::size_t cut_at(std::size_t n, std::size_t cols, std::size_t k, std::size_t pieces);

std::string to_string(const Plan& plan);

}  // namespace tithe
