// SPDX-License-Identifier: Apache-2.0
// The statistics, the plan and the messages of a session; recorder.h has the sums of the lanes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "engine/session/session_impl.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {

SessionStats SessionImpl::stats() const {
  SessionStats s = runner_.stats();
  const std::lock_guard lock(mutex_);
  rounds_.report(s);
  residuals_.report(s);
#define TITHE_STAT(type, name, initial, documentation)
#define TITHE_SUM(type, name, initial, documentation) s.name += before_.name;
#include "tithe/stats.def"
#undef TITHE_STAT
  s.epoch = options_.epoch;
  s.lanes = lanes_;
  const Straggler& late = straggler_detector_.found();
  s.late_rank = late.rank;
  s.late_share = late.share;
  s.late_ns = late.cost_ns;
  s.measured_round = norms_.committed();
  const Norms::Pair norms = norms_.total();
  s.gradient_norm = norms.gradient;
  s.residual_norm = norms.residual;
  return s;
}

// After a round. Rank 0 logs a straggler once, until a window finds another one, or none.
void SessionImpl::look_for_late() {
  if (rounds_.committed() == 1) return;  // before the first round the program had no time outside
  const Rank before = straggler_detector_.found().rank;
  if (!runner_.away(all_away_) || !straggler_detector_.take(all_away_)) return;
  const Straggler& late = straggler_detector_.found();
  if (member_.me != 0 || late.rank == Status::kNoPeer || late.rank == before) return;
  const std::string name =
      options_.members.empty() ? "" : fmt::format(" ('{}')", printable(name_of(late.rank), 200));
  log(
      fmt::format("round {}: rank {}{} is late: its program takes {:.4g} ms for a round, {:.0f} % more than "
                  "the median of all ranks, and the other ranks wait {:.4g} ms for it, on average over the "
                  "last {} rounds (docs/guide/stragglers.md)",
                  rounds_.round() - 1, late.rank, name, 1e-6 * static_cast<double>(late.own_ns),
                  100 * late.share, 1e-6 * static_cast<double>(late.cost_ns), kLateWindow));
}

std::vector<TensorStats> SessionImpl::tensor_stats() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string_view, TensorStats> by_key;
  for (const auto& e : layouts_.entries()) {
    const Unit& unit = e->unit();
    for (std::size_t i = 0; i < unit.tensors().size(); ++i) {
      const TensorLayout& t = unit.tensors()[i];
      if (e->used < e->kept[i]->used) continue;  // it came in another layout since
      const auto part =
          std::ranges::upper_bound(unit.plan().parts, t.first, {}, [](const Part& p) { return p.first; });
      const bool none = t.n == 0 || part == unit.plan().parts.begin();  // no values, so no part
      const Norms::Pair norms = norms_.of(t.key);
      by_key[t.key] = {.key = t.key,
                       .n = t.n,
                       .codec = none ? std::string() : to_string(std::prev(part)->spec),
                       .strategy = none ? std::string() : std::string(std::prev(part)->strategy->name),
                       .side = norms_.is_side(t.key),
                       .gradient_norm = norms.gradient,
                       .residual_norm = norms.residual};
      if (const auto gave = residuals_.lost().find(t.key); gave != residuals_.lost().end()) {
        by_key[t.key].values_lost = gave->second.values;
        by_key[t.key].sum_lost = gave->second.sum;
      }
    }
  }
  std::vector<TensorStats> all;
  for (auto& [key, t] : by_key) all.push_back(std::move(t));
  return all;
}

// Norms and the advisor read gradients in the host's memory. If the bucket is there already, this allocates nothing.
Status SessionImpl::look_at(Unit& unit, std::span<const Tensor> bucket, std::uint64_t layout) {
  const bool gathers = unit.plan().kind == RoundKind::kAllGather;  // weights, or others' values: no gradients
  const bool measured = norms_.due(rounds_.round() + 1) && !gathers;
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

std::string SessionImpl::plan_text() const {
  const std::lock_guard lock(mutex_);
  std::string out =
      options_.lanes ? fmt::format("lanes: {}, set by lanes=\n", lanes_)
                     : fmt::format("lanes: {}, from {} core{} that {} rank{} may use\n", lanes_, cores_.cores,
                                   cores_.cores == 1 ? "" : "s", cores_.ranks, cores_.ranks == 1 ? "" : "s");
  if (!plan_.link_given() && !plan_.link().empty())
    out += fmt::format(
        "links of {:.4g} Gbit/s, as reported by the drivers of all ranks; link= overrides this rate\n",
        8e-9 * plan_.choices().defaults().link.bytes_per_second);
  for (std::size_t i = 0; i < layouts_.entries().size(); ++i) {
    const Unit& unit = layouts_.entries()[i]->unit();
    std::vector<PlanTensor> tensors;
    for (const TensorLayout& t : unit.tensors()) tensors.push_back({t.key, t.n, t.row});
    fmt::format_to(std::back_inserter(out), "layout {}: {} tensors, {} values\n{}", i, tensors.size(),
                   unit.values(), to_text(unit.plan(), tensors, plan_.choices()));
    out += unit.device_text();
  }
  for (const Spec& spec : programs_of(plan_.choices()))
    fmt::format_to(std::back_inserter(out), "{}: {}\n", to_string(spec), how_it_runs(spec));
  if (rounds_.over())
    for (const std::string& rule : plan_.unused_rules()) out += rule + "\n";
  return out;
}

std::vector<std::string> SessionImpl::messages() {
  std::vector<std::string> lines = advisor_ == nullptr ? std::vector<std::string>() : advisor_->messages();
  const std::vector<std::string> gpus = member_.gpus->messages();
  lines.insert(lines.end(), gpus.begin(), gpus.end());
  const std::vector<std::string> transport = runner_.messages();
  lines.insert(lines.end(), transport.begin(), transport.end());
  const std::lock_guard lock(mutex_);
  lines.insert(lines.end(), messages_.begin(), messages_.end());
  messages_.clear();
  return lines;
}

Status SessionImpl::write_trace() {
  const std::lock_guard lock(trace_mutex_);
  return trace_ == nullptr ? Status{} : trace_->write(runner_.recorder());
}

}  // namespace tithe::engine
