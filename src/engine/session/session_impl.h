// SPDX-License-Identifier: Apache-2.0
#pragma once
// The implementation of a Session. session.cc has the rounds, session_face.cc the public interface, session_states.cc
// saving, resuming and undoing, session_reform.cc the change of members, session_changes.cc the change of choices,
// session_limits.cc the treatment of excessive values and lack of memory.
#include <map>

#include "base/environment.h"
#include "engine/peers/session_config.h"
#include "engine/program/bucket.h"
#include "engine/run/runner.h"
#include "engine/session/advisor.h"
#include "engine/session/norms.h"
#include "engine/session/saved_state.h"
#include "engine/session/stragglers.h"
#include "engine/session/trace_file.h"
#include "feedback/lost_rank_residuals.h"
#include "feedback/residual_store.h"

namespace tithe {

class Session::Impl {
 public:
  // `options` include the link: the given one, or else the one that the transport detected.
  Impl(std::unique_ptr<Transport> transport, SessionOptions options, bool link_said, Choices choices,
       Schedule schedule, const engine::Tagging& tagging, const engine::DeviceChoice& device,
       const engine::Pacing& pacing, std::unique_ptr<engine::TraceFile> trace,
       const engine::Stragglers& stragglers, std::uint64_t proposed_job);
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<Transport> transport,
                                               const SessionOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // straggler_proxy.h. The owner of a round: the caller's program, or the proxy.
  class StragglerProxy;
  enum class RoundOwner : std::uint8_t { kCaller, kProxy };
  StragglerProxy* proxy() const { return proxy_.get(); }
  std::uint64_t next_round() const {
    const std::lock_guard lock(mutex_);
    return round_;
  }

  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin,
                      RoundKind kind = RoundKind::kAllReduce, RoundOwner owner = RoundOwner::kCaller);
  Status wait(Ticket ticket, RoundOwner owner = RoundOwner::kCaller);
  Result<bool> poll(Ticket ticket);
  Status commit(RoundOwner owner = RoundOwner::kCaller);
  Result<std::vector<std::uint8_t>> state();
  Status restore(ByteView bytes);
  Status restore(std::span<const ByteView> states, Lost lost);
  Status undo();
  Result<std::vector<std::uint8_t>> common_state();
  // session_reform.cc
  Status may_become(Rank rank, int world, const std::vector<std::string>& members, std::uint64_t epoch) const;
  SessionOptions options_in(std::vector<std::string> members, std::uint64_t epoch) const;
  void follow(Impl& old);
  Status residual(std::string_view key, std::span<float> out) const;
  std::string plan_text() const;
  SessionStats stats() const;
  std::vector<TensorStats> tensor_stats() const;
  Status evaluated(double loss);
  Status learning_rate(double rate);
  double ratio() const;
  Status propose(std::string_view choices, std::uint64_t round);
  Status user_proposes(std::string_view choices, std::uint64_t round);
  Proposal proposal() const;
  std::vector<std::string> messages();
  std::string choices() const;
  // A text about the memory that the layout of this bucket needs.
  std::string needs(std::span<const Tensor> bucket, RoundKind kind) const;
  // Ends the session because this rank cannot take part.
  Status no_memory(const std::string& what);
  Status write_trace();
  // The status of a call. If the session has ended, writes the trace first.
  Status told(Status s) {
    if (!s.ok() && !runner_.status().ok()) (void)write_trace();
    return s;
  }

  const engine::Member& member() const { return member_; }
  engine::Runner& runner() { return runner_; }
  bool last_round_dropped() const {
    const std::lock_guard lock(mutex_);
    return last_round_dropped_;
  }

 private:
  struct LayoutEntry {  // a known layout
    std::uint64_t hash = 0;
    engine::Job* job = nullptr;
    std::vector<feedback::TensorState*> kept;  // by tensor of the unit
    Ticket ticket = 0;                         // of its last round
    std::uint64_t used = 0;                    // 1 + its last round
    std::uint64_t used_before = 0;             // the previous value of `used`
    bool waited = true;
    bool open = false;  // its bucket is in the open round
  };

  // The last committed round, as far as undo() must reverse it.
  struct Undo {
    bool possible = false;                        // undo() is allowed
    bool finite = false;                          // false: the round was dropped
    bool dropped = false;                         // the round before it was dropped
    std::shared_ptr<const Choices> choices = {};  // of the previous commit
    std::vector<LayoutEntry*> entries = {};
    double forgotten = 0;
    std::uint64_t values_dropped = 0;  // by this rank
    double sum_dropped = 0;
  };

  // The product of a proposal, built while rounds continue.
  struct BuiltPlan {
    std::uint32_t number = 0;  // of the proposal
    std::shared_ptr<const Choices> choices;
    // By the number of the job that they replace.
    std::map<std::uint32_t, std::unique_ptr<engine::Unit>> units;
  };
  // A layout at the time of a proposal.
  struct SeenLayout {
    std::uint32_t job = 0;
    std::vector<std::string> keys;
    RoundKind kind = RoundKind::kAllReduce;
    std::vector<std::vector<std::size_t>> bounds;  // Tensor::bounds
    std::vector<Tensor> bucket;  // in the caller's order, with the addresses of the last round
    std::vector<feedback::StateKinds>
        transferable;  // in the same order: state that the new unit can take over
  };

  Result<LayoutEntry*> entry_of(std::span<const Tensor> bucket, RoundKind kind);
  Status check_new(std::span<const Tensor> bucket, RoundKind kind) const;
  // incoming: in the caller's order.
  std::unique_ptr<engine::Unit> unit_of(std::span<const Tensor> bucket, RoundKind kind,
                                        const Choices& choices,
                                        std::span<const feedback::StateKinds> incoming = {}) const;
  // Checks that all layouts can continue with these choices.
  Status check_kinds(const Choices& choices) const;
  engine::Job& add(std::unique_ptr<engine::Unit> unit, std::uint64_t layout);
  Status look_at(engine::Unit& unit, std::span<const Tensor> bucket, std::uint64_t layout);
  Status in_open_round(std::string_view key) const;
  Status meets_open_round(const LayoutEntry& e) const;
  Status commit_round(bool& ended);
  Status check_residuals();

  engine::ProxyTrigger proxy_trigger_for(const engine::Stragglers& stragglers);

  // session_stats.cc
  void look_for_late();

  // straggler_proxy.cc
  void add_unsent(const Tensor& tensor, std::uint64_t round);
  Ticket late_ticket();
  void caller_returned();  // the program returns from a call that ends a round

  // session_states.cc
  std::string name_of(Rank rank) const;
  std::string my_name() const { return name_of(member_.me); }
  std::string ranks_text() const;
  void show_job(bool restored);
  Result<std::shared_ptr<const Choices>> fits(const engine::SavedHead& head,
                                              const feedback::ResidualStore::Map& saved) const;
  Status go_on(const engine::SavedHead& head, feedback::ResidualStore::Map&& saved,
               const std::shared_ptr<const Choices>& choices);
  Result<std::vector<std::uint8_t>> saved(bool debts);
  void release_undo();

  // session_limits.cc
  void say(std::string line);
  void drop_excessive(bool finite, bool excessive);
  void forget_gone();

  // session_changes.cc
  static std::string automatic_text(const SessionOptions& options);
  void start_advisor();
  void advise();  // called after a round
  Status check_allowed(const Choices& choices, const feedback::ResidualStore::Map& saved) const;
  Result<Choices> checked(std::string_view text) const;
  engine::Answer build(std::uint32_t number, const std::string& text);
  void discard(std::uint32_t number);
  SeenLayout seen(const LayoutEntry& e) const;
  void switch_over();
  void take(std::shared_ptr<const Choices> choices, BuiltPlan* built);
  Result<std::shared_ptr<const Choices>> choices_of(const engine::SavedHead& head) const;

  std::mutex trace_mutex_;
  const std::unique_ptr<engine::TraceFile> trace_;  // null: no trace was requested
  const SessionOptions options_;
  const CoresHere cores_;
  const int lanes_;
  const engine::Member member_;
  const std::string automatic_;  // the spec of codec "auto"; empty: another codec
  const bool link_said_;         // false: the transport detected the link, or it is unknown
  std::unique_ptr<engine::Advisor>
      advisor_;  // on rank 0, with codec "auto" or TITHE_ADVISE; outlives the background task

  std::mutex commit_mutex_;   // taken before mutex_
  mutable std::mutex mutex_;  // guards all members below; the runner has its own
  // The link for the choices; restore() replaces it unless the user gave it.
  std::string link_ = options_.link;
  Schedule schedule_;
  feedback::ResidualStore store_;
  std::shared_ptr<const Choices> choices_;  // of the next round
  std::shared_ptr<const Choices> opened_choices_ = choices_, committed_choices_ = choices_;
  std::optional<BuiltPlan> built_;
  engine::RulesUsed rules_used_{*choices_};
  bool met_all_ = false;  // the rules were checked after a whole round
  engine::Norms norms_{options_.measure};
  // The time of the first and the last bucket of the open round; then sums over all rounds.
  std::int64_t first_handed_ns_ = 0, last_handed_ns_ = 0;
  std::uint64_t gradient_bytes_ = 0, exchange_ns_ = 0, exposed_ns_ = 0;
  std::vector<std::unique_ptr<LayoutEntry>> entries_;
  std::vector<LayoutEntry*> open_;  // reused by commit()
  bool ending_ = false;             // a commit() of the open round is running
  Status broken_;                   // not ok: a residual of this rank cannot be sent
  std::uint64_t round_ = 0;
  std::uint64_t committed_ = 0;  // rounds of this session
  Ticket last_ticket_ = 0;
  std::uint32_t next_part_ = 0;
  bool last_round_dropped_ = false;
  bool round_over_ = false;  // a round of this session is over
  std::uint64_t values_dropped_ = 0;
  double sum_dropped_ = 0;
  double sum_decayed_ = 0;
  Undo undo_;
  SessionStats before_;  // statistics of previous epochs
  std::uint64_t rounds_undone_ = 0;
  const std::uint64_t proposed_job_;  // drawn by rank 0 for a new job; 0 on other ranks
  std::uint64_t job_ = 0;             // SavedHead::job
  std::string resumed_;               // for cards: the states of another world from which all ranks resumed
  std::uint64_t ranks_lost_ = 0;
  feedback::LostResiduals book_;    // residuals of lost ranks
  std::vector<std::string> lines_;  // for messages()
  // The time at which the program left the session, and its waits since then; its time outside in the last round.
  std::int64_t left_ns_ = 0, blocked_ns_ = 0;
  std::uint64_t away_ns_ = 0;
  engine::StragglerDetector straggler_detector_;
  std::vector<std::uint64_t> all_away_;    // by rank; reused
  engine::Straggler late_;                 // for stats()
  std::unique_ptr<StragglerProxy> proxy_;  // null: no proxy. Outlives the lanes, which call it
  engine::Runner runner_;  // last: its lanes stop before the members that they use are destroyed
};

}  // namespace tithe
