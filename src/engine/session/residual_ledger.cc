// SPDX-License-Identifier: Apache-2.0
#include "engine/session/residual_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/finite.h"
#include "base/text.h"

namespace tithe::engine {
namespace {

constexpr std::uint64_t kRoundsToLook = 64;

}  // namespace

TensorSizes sizes_of(const feedback::ResidualStore::Map& states) {
  TensorSizes out;
  for (const auto& [key, state] : states) out.emplace_back(key, state.n);
  return out;
}

Status ResidualLedger::read(std::string_view key, std::span<float> out) const {
  const feedback::TensorState* kept = store_.find(key);
  if (kept == nullptr) return {Code::kInvalid, fmt::format("no tensor '{}' in this session", key)};
  if (kept->n != out.size())
    return {Code::kInvalid, fmt::format("tensor '{}' has {} values, got {}", key, kept->n, out.size())};
  const std::span<const float> residual = kept->residual();
  TITHE_TRY(kept->lost());
  if (residual.empty())
    std::fill(out.begin(), out.end(), 0.0F);
  else
    std::copy(residual.begin(), residual.end(), out.begin());
  return {};
}

Status ResidualLedger::restore(feedback::ResidualStore::Map&& saved) {
  for (const auto& [key, from] : saved)
    if (const feedback::TensorState* kept = store_.find(key); kept != nullptr && kept->n != from.n)
      return {Code::kInvalid, fmt::format("tensor '{}' has {} values in the state, but {} in this session",
                                          key, from.n, kept->n)};
  store_.restore(std::move(saved));
  return {};
}

std::string ResidualLedger::add_unsent(std::string_view key, std::span<const float> gradient,
                                       std::uint64_t round) {
  if (all_finite(gradient) && store_.of(key).add_unsent(gradient)) return {};
  for (const float v : gradient)
    if (is_finite(v) && v != 0.0F) sums_.drop(1, double{v});
  return fmt::format(
      "round {} continued without rank {}, and its gradient of tensor '{}' is dropped: the "
      "gradient, or its sum with the residual, is not finite",
      round, me_, printable(key, 200));
}

void ResidualLedger::commit(double decayed) {
  last_ = {.sum_decayed = decayed};
  sums_.sum_decayed += decayed;
}

// A finite gradient of 3e38 leaves a residual that no later round can send: sums with it overflow, or it takes
// hundreds of rounds to decrease. So such a residual is dropped after the first round that detects it. A codec that
// clamps values to its range detects nothing, so each tensor is also checked once every kRoundsToLook rounds.
std::vector<std::string> ResidualLedger::drop_excessive(std::uint64_t round, bool finite, bool excessive) {
  std::vector<std::string> messages;
  std::uint64_t turn = round;
  for (auto& [key, kept] : store_.all()) {
    if (turn++ % kRoundsToLook != 0 && finite && !excessive) continue;
    const feedback::DroppedResidual gone = kept.drop_excessive();
    if (gone.largest == 0) continue;
    sums_.drop(gone.values, gone.sum);
    if (kept.used == round) last_.drop(gone.values, gone.sum);
    messages.push_back(fmt::format(
        "round {}{}: the residual of rank {} for tensor '{}' reached {:.2g} and is dropped ({} values, their "
        "sum {:.3g}): an earlier gradient had a value of this size; see 'One spike' in "
        "docs/guide/footguns.md",
        round - 1, finite ? "" : " was dropped", me_, key, gone.largest, gone.values, gone.sum));
  }
  return messages;
}

// Encoders and sums report values that are not finite before a residual is written, so this detects a bug of tithe. The
// check runs here because such a residual would drop all later rounds.
Status ResidualLedger::check_finite(const Choices& choices) {
  for (const auto& [key, kept] : store_.all())
    if (!all_finite(kept.residual()) || !all_finite(kept.velocity())) {
      TITHE_ASSERT(false);
      return broken_ = {
                 Code::kCorrupt,
                 fmt::format(
                     "the residual of rank {} for tensor '{}' is not finite, which is a bug in codec {}: "
                     "resume from an earlier state, and please report it",
                     me_, key, choices.choice(key, kept.n).spec.codec->name),
                 me_};
    }
  return {};
}

void ResidualLedger::undo() {
  sums_.sum_decayed -= last_.sum_decayed;
  sums_.dropped -= last_.dropped;
  sums_.sum_dropped -= last_.sum_dropped;
}

void ResidualLedger::discard_lost(const feedback::LostResiduals& residuals) {
  for (const auto& [key, lost] : residuals) lost_[key] += lost;
}

void ResidualLedger::report(SessionStats& stats) const {
  stats.values_dropped = sums_.dropped;
  stats.sum_dropped = sums_.sum_dropped;
  stats.sum_decayed = sums_.sum_decayed;
  stats.ranks_lost = ranks_lost_;
  for (const auto& [key, lost] : lost_) {
    stats.values_lost += lost.values;
    stats.sum_lost += lost.sum;
  }
}

}  // namespace tithe::engine
