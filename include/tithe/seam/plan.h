// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Plan is a value: the codec and strategy of each part of a bucket. It is the choices (tithe/choices.h) applied to
// the tensors of one bucket. It is the same on every rank (every frame contains its hash), printable and comparable.
//
//   ordered    tensors of higher priority come first; among equals, tensors with their own parts come first, then the
//              tensors of each group together
//   covers     parts are contiguous, in order, and cover the bucket
//   aligned    a part starts at a tensor's first value, or inside a tensor larger than its part_values
//   grouped    tensors of a group share parts of at most part_values. None is cut: a larger tensor has its own parts
//   shaped     if a codec's parameter `cols` is 0, it becomes the values per row of the tensor, and the tensor is cut
//   hosts      a strategy with two levels is replaced by its strategy between hosts if each rank has its own host.
//              With one host, only the exchange inside that host remains
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
  int priority = 0;                 // parts of higher priority run first, in all buckets
  std::optional<Spec> inside = {};  // codec between ranks of one host, if the strategy has two levels
  // The first value of each chunk, and the end: world + 1 entries in a reduce-scatter or an all-gather. Empty: equal
  // chunks.
  std::vector<std::size_t> starts = {};
  friend bool operator==(const Part&, const Part&) = default;
};

// A tensor, as input of a plan.
struct PlanTensor {
  std::string_view key;
  std::size_t n = 0;    // values; 0 is allowed
  std::size_t row = 0;  // values per row; 0: unknown
  // In a reduce-scatter or an all-gather: rank r owns the values [bounds[r], bounds[r + 1]). Empty: equal_bounds().
  std::span<const std::size_t> bounds = {};
};

// Bounds of n values in rows of `row` values (0: one value): ceil(rows / world) whole rows for each rank, fewer for the
// last ones, as torch.chunk and DTensor's Shard(0) cut a tensor.
std::vector<std::size_t> equal_bounds(std::size_t n, std::size_t row, int world);

struct Plan {
  RoundKind kind = RoundKind::kAllReduce;
  std::vector<std::size_t> order;  // the bucket's tensors by index, in the order of the parts
  std::vector<Part> parts;
  // Hash of the facts that ranks must agree on: format version, world, sizes, specs, strategies, servers; and hosts,
  // if the strategy uses them.
  std::uint64_t hash(int world, const Hosts& hosts = {}, int servers = 0) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

Plan make_plan(std::span<const PlanTensor> bucket, const Choices& choices,
               RoundKind kind = RoundKind::kAllReduce);
// kUnsupported, with the tensor's codec and the cure, if ranks with only their own range cannot run the codec.
Status check_kind(const Plan& plan);

bool has_cols(const Codec& codec);
// The codec's parameter `cols`; 0 if it has none or it is not set.
std::size_t cols_of(const Spec& spec);
// The offset of the k-th of `pieces` cuts of n values: 0 is their start, `pieces` their end. Between rows of `cols`
// values, if there are several rows.
std::size_t cut_at(std::size_t n, std::size_t cols, std::size_t k, std::size_t pieces);

std::string to_string(const Plan& plan);

}  // namespace tithe
