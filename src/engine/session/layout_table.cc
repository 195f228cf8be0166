// SPDX-License-Identifier: Apache-2.0
#include "engine/session/layout_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::engine {
namespace {

using feedback::TensorState;

// A round's results are final at its commit, so the next one does not begin by itself.
Status in_open_round(std::string_view key, std::uint64_t round) {
  return {Code::kInvalid,
          fmt::format("tensor '{}' is part of round {} already: call commit() first, which ends that round",
                      key, round)};
}

// The addresses of the last round tell which tensors need staging memory; the tensors are not read.
SeenLayout look_at_layout(const LayoutEntry& e) {
  Unit& unit = e.unit();
  SeenLayout out;
  out.job = e.job->number;
  out.kind = e.kind();
  out.bucket = unit.last_bucket();
  out.bounds.resize(out.bucket.size());
  out.keys.resize(out.bucket.size());
  out.transferable.resize(out.bucket.size());
  for (const TensorLayout& t : unit.tensors()) {
    out.keys[t.index] = t.key;
    out.bounds[t.index] = t.bounds;
    out.transferable[t.index] = unit.feedback().transferable(t.slice());
    Tensor& mine = out.bucket[t.index];  // empty if the layout has had no round
    mine.key = out.keys[t.index];
    mine.n = t.n;
    mine.dtype = t.dtype;
    mine.row = t.row;
    mine.bounds = out.bounds[t.index];
  }
  return out;
}

}  // namespace

void LayoutEntry::begin(Ticket of_bucket, std::uint64_t round) {
  ticket = of_bucket;
  used_before = std::exchange(used, round + 1);
  waited = false;
  open = true;
}

LayoutEntry* LayoutTable::find(std::span<const Tensor> bucket, RoundKind kind, std::uint64_t hash) const {
  for (const auto& e : entries_)
    if (e->hash == hash && e->kind() == kind && same_layout(e->unit().tensors(), bucket)) return e.get();
  return nullptr;
}

LayoutEntry* LayoutTable::find(Ticket ticket) const {
  const auto at = std::ranges::find(entries_, ticket, [](const auto& e) { return e->ticket; });
  return at == entries_.end() ? nullptr : at->get();
}

// A key keeps its number of values and its kind of round, because its residual belongs to both.
Status LayoutTable::check_new(std::span<const Tensor> bucket, RoundKind kind,
                              const feedback::ResidualStore& store, std::uint64_t round) const {
  TITHE_TRY(check_keys(bucket));
  for (const Tensor& t : bucket) {
    const TensorState* kept = store.find(t.key);
    if (kept != nullptr && kept->n != t.n)
      return {Code::kInvalid,
              fmt::format("tensor '{}' has {} values, but had {} before", t.key, t.n, kept->n)};
    // The layout must stay unknown.
    if (kept != nullptr && kept->used == round + 1) return in_open_round(t.key, round);
  }
  for (const auto& e : entries_) {
    if (e->kind() == kind) continue;
    for (const TensorLayout& t : e->unit().tensors())
      if (std::ranges::find(bucket, t.key, &Tensor::key) != bucket.end())
        return {
            Code::kInvalid,
            fmt::format("tensor '{}' is in a bucket of {}, and was in a bucket of {} before: the residual of "
                        "a key belongs to one kind of round, so give the other tensor another key",
                        t.key, name(kind), name(e->kind()))};
  }
  return {};
}

LayoutEntry& LayoutTable::add(std::span<const Tensor> bucket, RoundKind kind, std::uint64_t hash,
                              const Choices& choices, const Card& card, feedback::ResidualStore& store) {
  auto entry = std::make_unique<LayoutEntry>();
  entry->hash = hash;
  entry->job = &add_job(unit_of(bucket, kind, choices), hash, card);
  for (const TensorLayout& t : entry->unit().tensors()) {
    entry->kept.push_back(&store.of(t.key));
    entry->kept.back()->n = t.n;
  }
  entries_.push_back(std::move(entry));
  last_.reserve(entries_.size());
  return *entries_.back();
}

Job& LayoutTable::add_job(std::unique_ptr<Unit> unit, std::uint64_t hash, Card card) {
  unit->use_channels(next_part_);
  next_part_ += static_cast<std::uint32_t>(unit->plan().parts.size());
  card.tensors = unit->tensors().size();
  card.values = unit->values();
  card.layout = hash;
  card.plan = unit->plan_hash();
  return runner_.add(std::move(unit), std::move(card));
}

Status LayoutTable::check_not_open(const LayoutEntry& entry, std::uint64_t round) {
  for (std::size_t i = 0; i < entry.kept.size(); ++i)
    if (entry.kept[i]->used == round + 1) return in_open_round(entry.unit().tensors()[i].key, round);
  if (entry.open)
    return {Code::kInvalid, fmt::format("this bucket is part of round {} already: commit() first", round)};
  return {};
}

bool LayoutTable::any_open() const {
  return std::ranges::any_of(entries_, [](const auto& e) { return e->open; });
}

std::unique_ptr<Unit> LayoutTable::unit_of(std::span<const Tensor> bucket, RoundKind kind,
                                           const Choices& choices,
                                           std::span<const feedback::StateKinds> incoming) const {
  Plan plan = plan_of(bucket, choices, kind);
  std::vector<TensorLayout> layout = lay_out(bucket, plan.order);
  std::vector<feedback::StateKinds> in_order;
  for (std::size_t k = 0; k < incoming.size(); ++k) in_order.push_back(incoming[plan.order[k]]);
  return std::make_unique<Unit>(member_, std::move(layout), std::move(plan), ratios_, in_order);
}

std::string LayoutTable::needs(std::span<const Tensor> bucket, RoundKind kind, const Choices& choices) const {
  const Plan plan = plan_of(bucket, choices, kind);
  return Unit::needs(member_, lay_out(bucket, plan.order), plan, ratios_);
}

std::vector<SeenLayout> LayoutTable::seen() const {
  std::vector<SeenLayout> out;
  for (const auto& e : entries_) out.push_back(look_at_layout(*e));
  return out;
}

Status LayoutTable::check_kinds(const Choices& choices) const {
  for (const auto& e : entries_)
    if (e->kind() != RoundKind::kAllReduce) {
      const SeenLayout layout = look_at_layout(*e);
      TITHE_TRY(check_kind(plan_of(layout.bucket, choices, layout.kind)));
    }
  return {};
}

// The layouts keep their order, so their jobs have the same numbers on all ranks. The old units, and built units of
// layouts that were removed meanwhile, are freed in the background.
void LayoutTable::rebuild(const Choices& choices, UnitsByJob built, const Card& card) {
  const auto old = std::make_shared<std::vector<std::unique_ptr<Unit>>>();
  for (const auto& e : entries_) {
    Job& before = *e->job;
    std::unique_ptr<Unit> unit = std::move(built[before.number]);
    if (unit == nullptr) {
      const SeenLayout layout = look_at_layout(*e);
      unit = unit_of(layout.bucket, layout.kind, choices);
    }
    e->kept = move_states(*e, *unit);
    e->job = &add_job(std::move(unit), e->hash, card);
    old->push_back(runner_.forget(before));
  }
  for (const auto& e : entries_) runner_.show(*e->job);
  for (auto& [job, unit] : built) old->push_back(std::move(unit));
  runner_.run_in_background([old] {});
}

// Moves each tensor's state into the new unit. If its memory can be taken over, no value is copied. Returns the states
// by tensor of the new unit.
std::vector<TensorState*> LayoutTable::move_states(LayoutEntry& entry, Unit& to) {
  Unit& from = entry.unit();
  const std::span<const TensorLayout> now = to.tensors(), was = from.tensors();
  std::vector<std::size_t> lay(was.size());  // by the caller's order: index in the old unit
  for (std::size_t i = 0; i < was.size(); ++i) lay[was[i].index] = i;
  std::vector<TensorState*> kept(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    const std::size_t old = lay[now[i].index];
    TensorState& state = *(kept[i] = entry.kept[old]);
    // False: the state is in another layout, or in none.
    const bool counts = state.owner == &from.feedback();
    const bool came = to.feedback().take_over(now[i].slice(), from.feedback(), was[old].slice(), counts);
    if (counts && came)
      state.finish_move(to.feedback(), now[i].slice());
    else if (counts)
      state.move_to(to.feedback(), now[i].slice());
  }
  to.feedback().complete();
  return kept;
}

LayoutTable::Committed LayoutTable::commit(bool finite, bool for_good) {
  Committed out;
  last_.clear();
  for (const auto& e : entries_) {
    if (!e->open) continue;
    last_.push_back(e.get());
    out.excessive = out.excessive || e->unit().excessive();
    out.decayed += e->unit().commit(finite, for_good);
    for (TensorState* kept : e->kept) kept->commit();
    e->open = false;
    if (out.trouble.ok()) out.trouble = e->unit().trouble();
  }
  return out;
}

void LayoutTable::spend(bool sent) {
  for (LayoutEntry* e : last_) {
    if (sent) e->unit().feedback().spend();
    for (TensorState* kept : e->kept) kept->release_replaced();
    if (auto spent = e->unit().feedback().take_spent(); !spent.empty())
      runner_.run_in_background([freed = std::move(spent)] {});
  }
}

void LayoutTable::undo(bool finite) {
  for (LayoutEntry* e : last_) {
    if (finite) e->unit().feedback().undo();
    for (TensorState* kept : e->kept) kept->undo();
    e->used = e->used_before;
  }
}

// Removes a layout if other layouts have synchronised all its tensors in the kRoundsToForget rounds after its last
// one. Frameworks regroup buckets and do not return to the old ones. All ranks synchronise the same tensors in the
// same rounds, so all of them remove the layout after the same round. If it returns, it is new on all ranks.
void LayoutTable::forget_gone() {
  std::erase_if(entries_, [&](const std::unique_ptr<LayoutEntry>& e) {
    const bool gone =
        !e->kept.empty() && std::all_of(e->kept.begin(), e->kept.end(), [&](const TensorState* kept) {
          return kept->used >= e->used + kRoundsToForget;
        });
    if (gone) (void)runner_.forget(*e->job);
    return gone;
  });
}

}  // namespace tithe::engine
