// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reduce-scatters and all-gathers of several tensors with ranges of many shapes, and the result as one array.
#include "support/law_cases.h"
#include "tithe/seam/plan.h"

namespace tithe::testing {

using Bounds = std::vector<std::size_t>;

// The bounds of tensor k: default (equal), uneven, one owner for everything, or with empty ranges.
inline Bounds bounds_of(std::size_t k, std::size_t n, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  std::mt19937 rng(static_cast<unsigned>(7 * k + n));
  Bounds cuts(ranks + 1, n);
  cuts.front() = 0;
  switch (k % 4) {
    case 0:
      return {};
    case 1:
      for (std::size_t r = 1; r < ranks; ++r) cuts[r] = rng() % (n + 1);
      break;
    case 2:
      for (std::size_t r = 1; r < ranks; ++r) cuts[r] = r <= ranks / 2 ? 0 : n;
      break;
    default:
      for (std::size_t r = 1; r < ranks; ++r) cuts[r] = r % 2 == 1 ? n * r / ranks : cuts[r - 1];
  }
  std::ranges::sort(cuts);
  return cuts;
}

inline Bounds effective(const Bounds& bounds, std::size_t n, int world) {
  return bounds.empty() ? equal_bounds(n, 0, world) : bounds;
}

// One round of one kind in which each tensor is its own bucket; then commit.
inline Status synchronise_as(RoundKind kind, Session& session, std::span<const std::size_t> sizes,
                             Values& values) {
  std::vector<Ticket> tickets;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::string key = key_of(sizes[k]);
    const Bounds bounds = bounds_of(k, sizes[k], session.world());
    const Tensor t{.key = key, .data = values[k].data(), .n = sizes[k], .bounds = bounds};
    const Result<Ticket> ticket = session.sync({&t, 1}, {}, kind);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket t : tickets) TITHE_TRY(session.wait(t));
  return session.commit();
}

// body(tensor, from, to, owner) for every range.
template <typename Body>
void each_range(std::span<const std::size_t> sizes, int world, Body body) {
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const Bounds cuts = effective(bounds_of(k, sizes[k], world), sizes[k], world);
    for (Rank r = 0; r < world; ++r) {
      const auto owner = static_cast<std::size_t>(r);
      body(k, cuts[owner], cuts[owner + 1], owner);
    }
  }
}

// Each range as its owner has it.
inline Values owned(const std::vector<Values>& by_rank, std::span<const std::size_t> sizes) {
  Values out = by_rank[0];
  each_range(sizes, static_cast<int>(by_rank.size()),
             [&](std::size_t k, std::size_t from, std::size_t to, std::size_t owner) {
               std::copy(by_rank[owner][k].begin() + static_cast<std::ptrdiff_t>(from),
                         by_rank[owner][k].begin() + static_cast<std::ptrdiff_t>(to),
                         out[k].begin() + static_cast<std::ptrdiff_t>(from));
             });
  return out;
}

// Makes `value` of all that ranks hold in ranges of others.
inline void clear_others(std::vector<Values>& by_rank, std::span<const std::size_t> sizes, float value = 0) {
  each_range(sizes, static_cast<int>(by_rank.size()),
             [&](std::size_t k, std::size_t from, std::size_t to, std::size_t owner) {
               for (std::size_t r = 0; r < by_rank.size(); ++r)
                 if (r != owner)
                   std::fill(by_rank[r][k].begin() + static_cast<std::ptrdiff_t>(from),
                             by_rank[r][k].begin() + static_cast<std::ptrdiff_t>(to), value);
             });
}

struct ShardedCombination {
  LawCase law;
  std::string strategy;
  RoundKind kind;
  int world;
};

inline std::vector<ShardedCombination> sharded_combinations() {
  std::vector<LawCase> laws;
  for (LawCase& law : law_cases()) {
    if (law.label == "mixed" || law.spec.codec->phases.size() > 1 || law.spec.codec->memory != nullptr)
      continue;
    // The ledger needs a residual.
    FeedbackPolicy& feedback = law.spec.feedback;
    if (!law.spec.codec->traits.lossless) feedback.kind = Feedback::kResidual;
    feedback.requested = feedback.kind == Feedback::kResidual;
    laws.push_back(std::move(law));
  }
  const char* const strategies[] = {"auto", "ring", "hosts"};
  const RoundKind kinds[] = {RoundKind::kReduceScatter, RoundKind::kAllGather};
  const int worlds[] = {1, 2, 3, 4, 5, 8};
  std::vector<ShardedCombination> all;
  for (const harness::Row& row :
       harness::pairs_or_product({laws.size(), std::size(strategies), std::size(kinds), std::size(worlds)}))
    all.push_back({laws[row[0]], strategies[row[1]], kinds[row[2]], worlds[row[3]]});
  return all;
}

inline std::string label_of(const ShardedCombination& c) {
  return c.law.label + "_" + c.strategy + "_" + std::string(name(c.kind)) + "_" + std::to_string(c.world);
}
inline void PrintTo(const ShardedCombination& c, std::ostream* out) { *out << label_of(c); }

}  // namespace tithe::testing
