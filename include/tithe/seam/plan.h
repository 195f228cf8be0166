// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Plan is a value: codec and strategy of each part of a bucket. It is the choices (tithe/choices.h) applied to
// the tensors of one bucket; the same on every rank (its hash travels in every frame), printable and comparable.
//
//   ordered    tensors of higher priority stand first; of equals, those of a group stand side by side, behind those
//              that have parts of their own
//   covers     parts lie back to back, in order, and cover the bucket
//   aligned    a part starts at a tensor's first value, or inside a tensor larger than its part_values
//   grouped    tensors of a group share parts of at most part_values. None is cut: a larger one has parts of its own
//   shaped     if a codec's parameter `cols` is 0, it becomes the values per row of the tensor, and the tensor is cut
//              between rows, because such a codec uses rows and columns
//   hosts      a strategy with two levels is replaced by its strategy between hosts if each rank has a host of its own;
//              with one host, only the exchange inside that host remains
//   small      tensors below min_values that match no rule are a group that is sent uncompressed (fp32)
//   sharded    in a reduce-scatter or an all-gather every tensor is one part; its chunk r is the range that rank r owns
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tithe/choices.h"
#include "tithe/seam/graph.h"
#include "tithe/seam/spec.h"
#include "tithe/status.h"

namespace tithe {

struct Part {
  std::size_t first = 0;  // offset in the bucket, values
  std::size_t n = 0;      // values
  Spec spec;
  const Strategy* strategy = nullptr;
  std::string why;
  bool scheduled = false;           // the session's schedule sets its ratio
  int priority = 0;                 // parts of higher priority run first, whichever bucket they are in
  std::optional<Spec> inside = {};  // codec between ranks of one host, if the strategy has two levels
  // Where chunks begin, and the end: world + 1 entries in a reduce-scatter or an all-gather. Empty: equal chunks.
  std::vector<std::size_t> starts = {};
  friend bool operator==(const Part&, const Part&) = default;
};

// A tensor as a plan sees it.
struct PlanTensor {
  std::string_view key;
  std::size_t n = 0;    // values; 0 is allowed
  std::size_t row = 0;  // values per row; 0: not known
  // Of a reduce-scatter or an all-gather: rank r owns the values [bounds[r], bounds[r + 1]). Empty: equal_bounds.
  std::span<const std::size_t> bounds = {};
};

// Bounds of n values in rows of `row` values (0: one value): ceil(rows / world) whole rows for each rank, fewer for the
// last ones, as torch.chunk and DTensor's Shard(0) cut a tensor.
std::vector<std::size_t> equal_bounds(std::size_t n, std::size_t row, int world);

struct Plan {
  RoundKind kind = RoundKind::kAllReduce;
  std::vector<std::size_t> order;  // the bucket's tensors, by number, as they stand in the parts
  std::vector<Part> parts;
  // Hash of the facts that ranks must agree on: format version, world, sizes, specs, strategies; servers; and hosts, if
  // the strategy uses them.
  std::uint64_t hash(int world, const Hosts& hosts = {}, int servers = 0) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan make_plan(std::span<const PlanTensor> bucket, const Choices& choices,
               RoundKind kind = RoundKind::kAllReduce);
// kUnsupported, with the tensor's codec and the cure, where ranks that hold only their own range cannot run it.
Status check_kind(const Plan& plan);

bool has_cols(const Codec& codec);
// The codec's parameter `cols`; 0 where it has none or it is not set.
std::size_t cols_of(const Spec& spec);
// Where n values are cut for the k-th time of `pieces`: 0 is their start, `pieces` their end. Between rows of `cols`
// values, if there are several.
std::size_t cut_at(std::size_t n, std::size_t cols, std::size_t k, std::size_t pieces);

std::string to_string(const Plan& plan);

}  // namespace tithe
