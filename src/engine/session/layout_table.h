// SPDX-License-Identifier: Apache-2.0
#pragma once
// The LayoutTable owns the known layouts of buckets: for each its job in the runner, and the states of its tensors.
// Layouts enter and leave the table after the same round on all ranks, so their jobs and parts have the same numbers.
//
//   once      a layout is checked, compiled and compared over the ranks when it is new; later buckets find it by hash
//   bounded   a layout whose tensors were in other layouts for kRoundsToForget rounds is removed
//   steady    calls for a known layout allocate nothing
//
// Threads  unit_of() reads constants and may run at any time. All other calls require the session's mutex.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/runner.h"
#include "feedback/residual_store.h"
#include "tithe/choices.h"

namespace tithe::engine {

struct LayoutEntry {  // a known layout
  std::uint64_t hash = 0;
  Job* job = nullptr;
  std::vector<feedback::TensorState*> kept;  // by tensor of the unit
  Ticket ticket = 0;                         // of its last round
  std::uint64_t used = 0;                    // 1 + its last round
  std::uint64_t used_before = 0;             // the previous value of `used`
  bool waited = true;
  bool open = false;  // its bucket is in the open round

  Unit& unit() const { return *job->unit; }
  RoundKind kind() const { return unit().plan().kind; }
  // Its bucket enters the round.
  void begin(Ticket of_bucket, std::uint64_t round);
};

// The data from which a unit of this layout under other choices is built.
struct SeenLayout {
  std::uint32_t job = 0;
  std::vector<std::string> keys;
  RoundKind kind = RoundKind::kAllReduce;
  std::vector<std::vector<std::size_t>> bounds;  // Tensor::bounds
  std::vector<Tensor> bucket;  // in the caller's order, with the addresses of the last round
  std::vector<feedback::StateKinds> transferable;  // in the same order: state that the new unit can take over
};
// Units by the number of the job that they replace.
using UnitsByJob = std::map<std::uint32_t, std::unique_ptr<Unit>>;

class LayoutTable {
 public:
  static constexpr std::uint64_t kRoundsToForget = 16;

  // ratios: all ratios of the session's schedule. `runner` is used after the constructor.
  LayoutTable(const Member& member, std::vector<double> ratios, Runner& runner)
      : member_(member), ratios_(std::move(ratios)), runner_(runner) {}

  const std::vector<std::unique_ptr<LayoutEntry>>& entries() const { return entries_; }
  // nullptr: the layout is new.
  LayoutEntry* find(std::span<const Tensor> bucket, RoundKind kind, std::uint64_t hash) const;
  // nullptr: no layout had this ticket in its last round.
  LayoutEntry* find(Ticket ticket) const;
  // Checks a bucket with a new layout against the known tensors.
  Status check_new(std::span<const Tensor> bucket, RoundKind kind, const feedback::ResidualStore& store,
                   std::uint64_t round) const;
  // Adds a layout under these choices. card: without the fields that depend on the layout.
  LayoutEntry& add(std::span<const Tensor> bucket, RoundKind kind, std::uint64_t hash, const Choices& choices,
                   const Card& card, feedback::ResidualStore& store);
  // kInvalid: the layout, or a tensor of it, is in the open round already.
  static Status check_not_open(const LayoutEntry& entry, std::uint64_t round);
  bool any_open() const;

  // A unit for a bucket. incoming: in the caller's order.
  std::unique_ptr<Unit> unit_of(std::span<const Tensor> bucket, RoundKind kind, const Choices& choices,
                                std::span<const feedback::StateKinds> incoming = {}) const;
  // A text about the memory that the layout of this bucket needs.
  std::string needs(std::span<const Tensor> bucket, RoundKind kind, const Choices& choices) const;
  std::vector<SeenLayout> seen() const;
  // Checks that all layouts can continue with these choices.
  Status check_kinds(const Choices& choices) const;
  // Switches all layouts to `choices`. No round may be open. built: prepared units; missing ones are built here.
  void rebuild(const Choices& choices, UnitsByJob built, const Card& card);

  // ---- The end of a round
  struct Committed {
    bool excessive = false;  // Unit::excessive of any layout
    double decayed = 0;      // Unit::commit
    Status trouble;          // the first one of all units
  };
  // Commits the layouts of the open round. for_good: undo() will not follow.
  Committed commit(bool finite, bool for_good);
  // The last commit cannot be undone any more. sent: the residuals that it sent are still stored.
  void spend(bool sent);
  void undo(bool finite);
  void forget_gone();

 private:
  Job& add_job(std::unique_ptr<Unit> unit, std::uint64_t hash, Card card);
  std::vector<feedback::TensorState*> move_states(LayoutEntry& entry, Unit& to);

  const Member& member_;
  const std::vector<double> ratios_;
  Runner& runner_;
  std::vector<std::unique_ptr<LayoutEntry>> entries_;
  std::vector<LayoutEntry*> last_;  // of the last committed round; reused
  std::uint32_t next_part_ = 0;
};

}  // namespace tithe::engine
