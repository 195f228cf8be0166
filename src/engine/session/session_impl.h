// SPDX-License-Identifier: Apache-2.0
#pragma once
// The SessionImpl connects the parts of a session: LayoutTable has the layouts, RoundTracker the rounds, PlanState the
// choices, ResidualLedger the residuals, and Runner executes the rounds.
//
// Locks  commit_mutex_, then mutex_, then the runner's. mutex_ guards all parts but the runner.
//
// session.cc has the rounds and undo(), session_open.cc the options, session_states.cc saving, resuming and reform(),
// session_changes.cc the change of choices, session_stats.cc statistics and messages.
#include "base/environment.h"
#include "engine/session/advisor.h"
#include "engine/session/norms.h"
#include "engine/session/plan_state.h"
#include "engine/session/round_tracker.h"
#include "engine/session/session_calls.h"
#include "engine/session/trace_file.h"

namespace tithe::engine {

// The parsed options of a session.
struct SessionSettings {
  std::unique_ptr<Transport> transport;
  SessionOptions options;  // with the link: the given one, or else the one that the transport detected
  bool link_given = false;
  Choices choices;
  Schedule schedule;
  Tagging tagging;
  DeviceChoice device;
  Pacing pacing;
  std::unique_ptr<TraceFile> trace;  // null: no trace was requested
  Stragglers stragglers;
  std::uint64_t proposed_job = 0;  // drawn by rank 0 for a new job; 0 on other ranks
};

class SessionImpl final : public SessionCalls {
 public:
  explicit SessionImpl(SessionSettings&& settings, ProxyTrigger proxy_trigger = {});
  ~SessionImpl() override;

  // ---- SessionCalls
  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) override {
    return hand_over(bucket, origin, kind, true);
  }
  Status wait(Ticket ticket) override;
  Result<bool> poll(Ticket ticket) override;
  Status commit() override;
  std::uint64_t round() const override;
  bool last_round_dropped() const override;
  SessionStats stats() const override;
  Status evaluated(double loss) override;
  Status learning_rate(double rate) override;
  Result<std::vector<std::uint8_t>> state(bool residuals) override;
  Status restore(ByteView bytes) override;
  Status restore(std::span<const ByteView> states, Lost lost) override;
  Status may_reform(Rank rank, int world, const std::vector<std::string>& members,
                    std::uint64_t epoch) const override;
  Status begin_reform() override { return {}; }
  SessionImpl& impl() override { return *this; }

  // ---- For a straggler proxy
  // A bucket of a round that the program does not run. SessionOptions::ended is not called for its ticket.
  Result<Ticket> sync_for_proxy(std::span<const Tensor> bucket) {
    return hand_over(bucket, {}, RoundKind::kAllReduce, false);
  }
  // Adds a late gradient, whose round ran without it, to the residual. No round may be open.
  void add_unsent(std::string_view key, std::span<const float> gradient, std::uint64_t round);
  Ticket issue_ticket();
  void program_returned();  // from a call that ends a round

  // ---- All other calls of Session
  double ratio() const;
  Status propose(std::string_view choices, std::uint64_t round);
  Status user_proposes(std::string_view choices, std::uint64_t round);
  Proposal proposal() const;
  std::string choices() const;
  std::vector<std::string> messages();
  Status undo();
  Status residual(std::string_view key, std::span<float> out) const;
  std::vector<TensorStats> tensor_stats() const;
  std::string plan_text() const;
  Status write_trace();
  // reform(): the options of the next world; then its session continues the sums and messages of the old one.
  SessionOptions options_in(std::vector<std::string> members, std::uint64_t epoch) const;
  void follow(SessionImpl& old, const SessionStats& stats);

  // A text about the memory that the layout of this bucket needs.
  std::string needs(std::span<const Tensor> bucket, RoundKind kind) const;
  // Ends the session because this rank cannot take part.
  Status no_memory(const std::string& what);
  // The status of a call. If the session has ended, writes the trace first.
  Status trace_if_ended(Status s) {
    if (!s.ok() && !runner_.status().ok()) (void)write_trace();
    return s;
  }
  const SessionOptions& options() const { return options_; }
  const Member& member() const { return member_; }
  Runner& runner() { return runner_; }

 private:
  Result<Ticket> hand_over(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind,
                           bool by_program);
  Result<LayoutEntry*> entry_of(std::span<const Tensor> bucket, RoundKind kind);
  Card card() const;  // without the fields that depend on the layout
  Status look_at(Unit& unit, std::span<const Tensor> bucket, std::uint64_t layout);
  Status commit_round(bool& ended);
  void release_undo();
  void look_for_late();
  void log(std::string message) {
    if (messages_.size() < kMaxMessages) messages_.push_back(std::move(message));
  }

  // session_states.cc
  std::string name_of(Rank rank) const { return member_name(options_.members, rank); }
  std::string ranks_text() const;
  void show_job(bool restored);
  Result<std::shared_ptr<const Choices>> check_state(const SavedHead& head,
                                                     const feedback::ResidualStore::Map& saved) const;
  Status resume(const SavedHead& head, feedback::ResidualStore::Map&& saved,
                const std::shared_ptr<const Choices>& choices);

  // session_changes.cc
  void start_advisor();
  void advise();  // called after a round
  Result<Choices> checked(std::string_view text) const;
  Answer build(std::uint32_t number, const std::string& text);
  void discard(std::uint32_t number);
  void use(std::shared_ptr<const Choices> choices, UnitsByJob built);

  static constexpr std::size_t kMaxMessages = 1000;  // not fetched yet
  std::mutex trace_mutex_;
  const std::unique_ptr<TraceFile> trace_;
  const SessionOptions options_;
  const CoresHere cores_;
  const int lanes_;
  const std::uint64_t proposed_job_;
  const Member member_;
  // On rank 0, with codec "auto" or TITHE_ADVISE. It outlives the background task.
  std::unique_ptr<Advisor> advisor_;

  std::mutex commit_mutex_;   // taken before mutex_
  mutable std::mutex mutex_;  // guards all members below; the runner has its own
  RoundTracker rounds_;
  ResidualLedger residuals_;
  LayoutTable layouts_;
  PlanState plan_;
  std::vector<std::string> messages_;  // at most kMaxMessages
  std::string resumed_;  // the states of another world from which all ranks resumed; empty: none
  Norms norms_;
  SessionStats before_;  // statistics of previous epochs
  StragglerDetector straggler_detector_;
  std::vector<std::uint64_t> all_away_;  // by rank; reused
  Runner runner_;  // last: its lanes stop before the members that they use are destroyed
};

}  // namespace tithe::engine
