// SPDX-License-Identifier: Apache-2.0
#pragma once
// A StragglerProxy wraps a session. It runs a round for this rank's program if the program is late, so that the other
// ranks need not wait. The proxy passes zeros as gradient, so codec and strategy treat the round like any other. The
// proxy stores the result. When the program reaches that round, its gradient is added to this rank's residual and sent
// with the next round; the program gets the stored result.
//
//   exact      the late gradient enters the residual, as if its round had sent none of it: the ledger holds
//   identical  the program gets the same bits as all other ranks in that round
//   bounded    at most `without` results are stored, and at most `ranks` ranks are missing in a round: a proxy begins a
//              round only if enough other ranks have begun it. Beyond that limit the others wait for the program
//   level      no proxy runs in the rounds k * `level` - 1 and k * `level`, so between them the states of all
//              ranks are of the same round
//   whole      the proxy never takes over a round that the program has begun
//
// Threads  one thread of its own, which calls the session as a program would. A lane of the session calls due().
// Locks    mutex_ before the session's. It is unlocked while the proxy waits for a round: `proxy_runs_` and `open_`
//          name the round's owner.
// Failure  after the session's end the stored results are still returned; then the session's status.
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "engine/session/session_impl.h"
#include "engine/session/stragglers.h"

namespace tithe::engine {

class StragglerProxy final : public SessionCalls {
 public:
  explicit StragglerProxy(SessionSettings settings);
  ~StragglerProxy() override;

  // The program's calls. Calls that need all ranks in the same round are kInvalid while results are stored for it.
  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) override;
  Status wait(Ticket ticket) override;
  Result<bool> poll(Ticket ticket) override;
  Status commit() override;
  std::uint64_t round() const override;  // the program's next round
  bool last_round_dropped() const override;
  SessionStats stats() const override;
  Status evaluated(double loss) override;
  Status learning_rate(double rate) override;
  Result<std::vector<std::uint8_t>> state(bool residuals) override;
  Status restore(ByteView bytes) override;
  Status restore(std::span<const ByteView> states, Lost lost) override;
  Status may_reform(Rank rank, int world, const std::vector<std::string>& members,
                    std::uint64_t epoch) const override;
  Status begin_reform() override { return level("reform", true); }
  SessionImpl& impl() override { return session_; }

 private:
  struct Shape {  // of a tensor
    std::string key;
    std::size_t n = 0;
    DType dtype = DType::kF32;
    std::size_t row = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  using Bucket = std::vector<Shape>;
  struct Round {  // a round that the proxy ran
    std::uint64_t number = 0;
    std::vector<std::vector<std::vector<std::uint32_t>>> results;  // by bucket and tensor
    bool dropped = false;
    std::size_t taken = 0;  // buckets that the program has handed over
  };

  // Other ranks wait for the round after `ended` rounds.
  void due(std::uint64_t ended);
  void run();
  // Wakes the proxy's thread.
  void kick();
  // True if the proxy must begin a round now. due: as due_.
  bool is_due(std::uint64_t due) const;
  Status play(Round& round);
  Result<Ticket> take(std::span<const Tensor> bucket);
  static Bucket shape_of(std::span<const Tensor> bucket);
  // Commits the open round, with no proxy running. kInvalid: results are stored for the program. for_good: disables
  // the proxy.
  Status level(std::string_view what, bool for_good = false);
  // kInvalid: results are stored for the program.
  Status check_level(std::string_view what) const;

  const Stragglers how_;

  std::mutex kick_mutex_;  // guards the next two members; taken last
  bool kicked_ = false;
  std::uint64_t due_ = 0;  // 1 + the number of ended rounds
  std::condition_variable kick_;
  SessionImpl session_;  // after the members that its lanes use

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  bool stop_ = false, disabled_ = false;
  bool proxy_runs_ = false;                        // the proxy runs a round
  std::uint64_t proxy_round_ = 0;                  // the number of that round
  bool open_ = false;                              // the program's own round is open
  std::uint64_t rounds_ = 0;                       // ended rounds, by either owner
  std::uint64_t proxied_ = 0;                      // rounds that the proxy ran
  std::vector<Bucket> last_shapes_, open_shapes_;  // of the last round; of the open round
  bool settled_ = false;                           // the last two rounds of the program had the same buckets
  std::deque<Round> missed_;
  std::set<Ticket> late_;  // tickets of the proxy's rounds, not waited for
  bool dropped_ = false;   // of the program's last round
  std::thread thread_;
};

}  // namespace tithe::engine
