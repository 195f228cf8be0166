// SPDX-License-Identifier: Apache-2.0
// The numbers and the plan that a session tells of itself; recorder.h has what lanes add up.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "engine/session/straggler_proxy.h"
#include "tithe/seam/catalogue.h"

namespace tithe {

SessionStats Session::Impl::stats() const {
  SessionStats s = runner_.stats();
  if (proxy_ != nullptr) {
    s.rounds_missed = proxy_->proxied();
    s.rounds_behind = proxy_->behind();
  }
  const std::lock_guard lock(mutex_);
  for (std::uint64_t SessionStats::*sum :
       {&SessionStats::rounds, &SessionStats::rounds_dropped, &SessionStats::values,
        &SessionStats::frames_sent, &SessionStats::bytes_sent, &SessionStats::encode_ns,
        &SessionStats::merge_ns, &SessionStats::send_ns, &SessionStats::wait_ns, &SessionStats::strange,
        &SessionStats::events_lost, &SessionStats::rounds_missed})
    s.*sum += before_.*sum;
  s.epoch = options_.epoch;
  s.lanes = lanes_;
  s.late_rank = late_.rank;
  s.late_share = late_.share;
  s.late_ns = late_.cost_ns;
  s.values_dropped = values_dropped_;
  s.sum_dropped = sum_dropped_;
  s.sum_decayed = sum_decayed_;
  s.rounds_undone = rounds_undone_;
  s.ranks_lost = ranks_lost_;
  for (const auto& [key, gave] : book_) {
    s.values_lost += gave.values;
    s.sum_lost += gave.sum;
  }
  s.gradient_bytes = gradient_bytes_;
  s.exchange_ns = exchange_ns_;
  s.exposed_ns = exposed_ns_;
  s.measured_round = norms_.committed();
  const engine::Norms::Pair norms = norms_.total();
  s.gradient_norm = norms.gradient;
  s.residual_norm = norms.residual;
  return s;
}

// Under mutex_, after a round. Rank 0 says it, once for a rank until a window finds another one, or nobody.
void Session::Impl::look_for_late() {
  if (committed_ == 1) return;  // in the first round a program was nowhere to come back from
  if (!runner_.away(all_away_) || !straggler_detector_.take(all_away_)) return;
  const Rank before = std::exchange(late_, straggler_detector_.found()).rank;
  if (member_.me != 0 || late_.rank == Status::kNoPeer || late_.rank == before) return;
  const std::string name =
      options_.members.empty() ? "" : fmt::format(" ('{}')", printable(name_of(late_.rank), 200));
  say(
      fmt::format("round {}: rank {}{} is late: its program takes {:.4g} ms for a round, {:.0f} % more than "
                  "the median of all ranks, and the other ranks wait {:.4g} ms for it, on average over the "
                  "last {} rounds (docs/guide/stragglers.md)",
                  round_ - 1, late_.rank, name, 1e-6 * static_cast<double>(late_.own_ns), 100 * late_.share,
                  1e-6 * static_cast<double>(late_.cost_ns), engine::kLateWindow));
}

std::vector<TensorStats> Session::Impl::tensor_stats() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string_view, TensorStats> by_key;
  for (const auto& e : entries_) {
    const engine::Unit& unit = *e->job->unit;
    for (std::size_t i = 0; i < unit.tensors().size(); ++i) {
      const engine::TensorLayout& t = unit.tensors()[i];
      if (e->used < e->kept[i]->used) continue;  // it came in another layout since
      const auto part =
          std::ranges::upper_bound(unit.plan().parts, t.first, {}, [](const Part& p) { return p.first; });
      const bool none = t.n == 0 || part == unit.plan().parts.begin();  // no values, so no part
      const engine::Norms::Pair norms = norms_.of(t.key);
      by_key[t.key] = {.key = t.key,
                       .n = t.n,
                       .codec = none ? std::string() : to_string(std::prev(part)->spec),
                       .strategy = none ? std::string() : std::string(std::prev(part)->strategy->name),
                       .side = norms_.is_side(t.key),
                       .gradient_norm = norms.gradient,
                       .residual_norm = norms.residual};
      if (const auto gave = book_.find(t.key); gave != book_.end()) {
        by_key[t.key].values_lost = gave->second.values;
        by_key[t.key].sum_lost = gave->second.sum;
      }
    }
  }
  std::vector<TensorStats> all;
  for (auto& [key, t] : by_key) all.push_back(std::move(t));
  return all;
}

// Norms and the advisor read gradients in the host's memory. Where these lie there already, this allocates nothing.
Status Session::Impl::look_at(engine::Unit& unit, std::span<const Tensor> bucket, std::uint64_t layout) {
  const bool gathers = unit.plan().kind == RoundKind::kAllGather;  // weights, or others' values: no gradients
  const bool measured = norms_.due(round_ + 1) && !gathers;
  if (advisor_ == nullptr && !measured) return {};
  std::vector<std::vector<std::uint8_t>> rooms;
  std::vector<Tensor> copies;
  if (unit.is_on_device()) {
    copies.assign(bucket.begin(), bucket.end());
    rooms.resize(bucket.size());
    for (std::size_t k = 0; k < copies.size(); ++k) TITHE_TRY(unit.read(k, copies[k], rooms[k]));
    bucket = copies;
  }
  if (measured) std::ranges::for_each(bucket, [&](const Tensor& t) { norms_.take(t); });
  if (advisor_ != nullptr) advisor_->handed(layout, bucket, runner_.now_ns());
  return {};
}

std::string Session::Impl::plan_text() const {
  const std::lock_guard lock(mutex_);
  std::string out =
      options_.lanes ? fmt::format("lanes: {}, set by lanes=\n", lanes_)
                     : fmt::format("lanes: {}, from {} core{} that {} rank{} may use\n", lanes_, cores_.cores,
                                   cores_.cores == 1 ? "" : "s", cores_.ranks, cores_.ranks == 1 ? "" : "s");
  if (!link_said_ && !link_.empty())
    out += fmt::format(
        "links of {:.4g} Gbit/s, as reported by the drivers of all ranks; link= overrides this rate\n",
        8e-9 * choices_->usual().link.bytes_per_second);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const engine::Unit& unit = *entries_[i]->job->unit;
    std::vector<PlanTensor> tensors;
    for (const engine::TensorLayout& t : unit.tensors()) tensors.push_back({t.key, t.n, t.row});
    fmt::format_to(std::back_inserter(out), "layout {}: {} tensors, {} values\n{}", i, tensors.size(),
                   unit.values(), engine::to_text(unit.plan(), tensors, *choices_));
    out += unit.device_text();
  }
  for (const Spec& spec : engine::programs_of(*choices_))
    fmt::format_to(std::back_inserter(out), "{}: {}\n", to_string(spec), how_it_runs(spec));
  if (round_over_)
    for (const std::string& rule : rules_used_.unused(*choices_)) out += rule + "\n";
  return out;
}

}  // namespace tithe
