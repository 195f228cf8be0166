// SPDX-License-Identifier: Apache-2.0
#pragma once
// A StandIn takes part in rounds for this rank's program where that is late, so that the others need not wait: with
// zeros for its gradient, so it is a round like any other, whatever the codec and the strategy are. The result waits
// here. When the program comes to that round it hands its gradient over as ever: that is added to what this rank has
// left unsent, and goes out with the next round; the program gets the result.
//
//   exact      the gradient is owed from then on, as if nothing of it had been sent in its round: the ledger holds
//   identical  the program gets the bits that all others got in that round
//   bounded    at most `without` results wait; a round goes on without at most `ranks` ranks, since a stand-in begins
//              where so many others have begun it as have to take part. After that all are waited for
//   level      around every `level`-th round nobody is stood in for: there states of all ranks are of one round
//   whole      a round that the program has begun is its own
//
// Threads  one of its own, which calls the session as a program would. due() comes from a lane of the session.
// Locks    mutex_ before the session's. It is let go of while a round is waited for: `standing_` and `open_` say whose
//          round that is.
// Failure  a session that has ended gives the results that wait here all the same; then its status.
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "engine/session/session_impl.h"
#include "engine/session/stragglers.h"

namespace tithe {

class Session::Impl::StandIn {
 public:
  StandIn(Impl& session, const engine::Stragglers& how) : session_(session), how_(how) {}
  ~StandIn() { stop(); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  void start();
  void stop();  // the session is cancelled
  // The others wait for a round before which so many have ended.
  void due(std::uint64_t ended);

  // As those of a Session, for its program.
  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin);
  Status wait(Ticket ticket);
  Result<bool> poll(Ticket ticket);
  Status commit();
  bool last_round_dropped() const;
  // Nobody stands in, and no result waits; the open round is committed. kInvalid: some wait. for_good: nobody will.
  Status level(std::string_view what, bool for_good = false);
  // kInvalid: results wait.
  Status check_level(std::string_view what) const;

  std::uint64_t round() const;     // the program's next one
  std::uint64_t behind() const;    // results that wait
  std::uint64_t stood_in() const;  // rounds

 private:
  struct Shape {  // of a tensor
    std::string key;
    std::size_t n = 0;
    DType dtype = DType::kF32;
    std::size_t row = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  using Bucket = std::vector<Shape>;
  struct Round {  // that went on without the program
    std::uint64_t number = 0;
    std::vector<std::vector<std::vector<std::uint32_t>>> results;  // by bucket and tensor
    bool dropped = false;
    std::size_t taken = 0;  // buckets that the program has come to
  };

  void run();
  void kick();
  bool is_due(std::uint64_t due) const;
  Status play(Round& round);
  Result<Ticket> take(std::span<const Tensor> bucket);
  static Bucket shape_of(std::span<const Tensor> bucket);

  Impl& session_;
  const engine::Stragglers how_;

  std::mutex kick_mutex_;  // of these two, and taken last of all
  bool kicked_ = false;
  std::uint64_t due_ = 0;  // 1 + the rounds that had ended
  std::condition_variable kick_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  bool stop_ = false, over_ = false;
  bool standing_ = false;      // a round is played:
  std::uint64_t playing_ = 0;  // this one
  bool open_ = false;          // the program's own round is
  std::uint64_t rounds_ = 0;   // that have ended, whoever played them
  std::uint64_t stood_in_ = 0;
  std::vector<Bucket> usual_, now_;  // of the last round, of the open one
  bool settled_ = false;             // the last two rounds of the program had the same buckets
  std::deque<Round> missed_;
  std::set<Ticket> late_;  // of rounds that it missed, not waited for
  bool dropped_ = false;   // the program's last round
  std::thread thread_;
};

}  // namespace tithe
