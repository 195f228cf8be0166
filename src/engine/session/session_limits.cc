// SPDX-License-Identifier: Apache-2.0
// The session's limits: values that are too large for residuals, and lack of memory.
#include <fmt/format.h>

#include "base/finite.h"
#include "engine/session/session_impl.h"

namespace tithe {
namespace {

constexpr std::uint64_t kRoundsToLook = 64;
constexpr std::size_t kMostLines = 1000;  // the maximum number of messages that were not fetched

}  // namespace

// A finite gradient of 3e38 leaves a residual that no later round can send: sums with it overflow, or it takes
// hundreds of rounds to decrease. So such a residual is dropped after the first round that detects it. A codec that
// clamps values to its range detects nothing, so each tensor is also checked once every kRoundsToLook rounds. The
// decision depends only on the residuals, the round number and its result, so a job that resumes from a state behaves
// the same. The results of other ranks do not depend on it.
void Session::Impl::drop_excessive(bool finite, bool excessive) {
  std::uint64_t turn = round_;
  for (auto& [key, kept] : store_.all()) {
    if (turn++ % kRoundsToLook != 0 && finite && !excessive) continue;
    const feedback::DroppedResidual gone = kept.drop_excessive();
    if (gone.largest == 0) continue;
    values_dropped_ += gone.values;
    sum_dropped_ += gone.sum;
    if (kept.used == round_) {
      undo_.values_dropped += gone.values;
      undo_.sum_dropped += gone.sum;
    }
    say(fmt::format(
        "round {}{}: the residual of rank {} for tensor '{}' reached {:.2g} and is dropped ({} values, their "
        "sum {:.3g}): an earlier gradient had a value of this size; see 'One spike' in "
        "docs/guide/footguns.md",
        round_ - 1, finite ? "" : " was dropped", member_.me, key, gone.largest, gone.values, gone.sum));
  }
}

void Session::Impl::say(std::string line) {
  if (lines_.size() < kMostLines) lines_.push_back(std::move(line));
}

std::vector<std::string> Session::Impl::messages() {
  std::vector<std::string> lines = advisor_ == nullptr ? std::vector<std::string>() : advisor_->messages();
  const std::vector<std::string> gpus = member_.gpus->messages();
  lines.insert(lines.end(), gpus.begin(), gpus.end());
  const std::vector<std::string> transport = runner_.messages();
  lines.insert(lines.end(), transport.begin(), transport.end());
  const std::lock_guard lock(mutex_);
  lines.insert(lines.end(), lines_.begin(), lines_.end());
  lines_.clear();
  return lines;
}

// Encoders and sums report values that are not finite before a residual is written, so this detects a bug of tithe. The
// check runs here because such a residual would drop all later rounds.
Status Session::Impl::check_residuals() {
  for (const auto& [key, kept] : store_.all())
    if (!all_finite(kept.residual()) || !all_finite(kept.velocity())) {
      TITHE_ASSERT(false);
      return broken_ = {
                 Code::kCorrupt,
                 fmt::format(
                     "the residual of rank {} for tensor '{}' is not finite, which is a bug in codec {}: "
                     "resume from an earlier state, and please report it",
                     member_.me, key, choices_->choice(key, kept.n).spec.codec->name),
                 member_.me};
    }
  return {};
}

std::string Session::Impl::needs(std::span<const Tensor> bucket, RoundKind kind) const {
  const std::lock_guard lock(mutex_);
  const Plan plan = engine::plan_of(bucket, *choices_, kind);
  return engine::Unit::needs(member_, engine::lay_out(bucket, plan.order), plan, schedule_.ratios());
}

// Other ranks cannot continue without this rank, so the session ends now.
Status Session::Impl::no_memory(const std::string& what) {
  runner_.cancel();
  return {
      Code::kIo,
      fmt::format("rank {} has no memory for {} (docs/reference/resources.md, 'Memory')", member_.me, what),
      member_.me};
}

}  // namespace tithe
