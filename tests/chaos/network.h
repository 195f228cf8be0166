// SPDX-License-Identifier: Apache-2.0
#pragma once
// A network of one process with a clock of its own: what a seed draws decides which message arrives next, and time
// passes only when nothing else can happen. A timeout of seconds costs microseconds.
//
//   stepped    sessions without lanes: one rank runs at a time, chosen by the seed. The same seed, the same run
//   threaded   sessions with lanes: ranks run at once, the seed chooses what arrives; time passes when all threads of
//              the process sleep (threads.h)
//   in_order   as the promise of tithe/seam/transport.h says: delays and turns never change the order within a channel
//   in_place   as there: what is withdrawn, or lost where its sender closes in good order, keeps its place
//
// Faults strike at points of the protocol, counted per rank, never at points in time.
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::chaos {

using Nanoseconds = std::chrono::nanoseconds;
using Time = std::chrono::steady_clock::time_point;

struct Weather {
  std::uint64_t seed = 1;
  bool turns = false;           // who runs and what arrives next is drawn; else in order
  Nanoseconds most_latency{0};  // of a message, drawn for each
  std::size_t eager_bytes =
      4096;  // larger messages leave when both sides have met; control ones always leave
};

// A kind of event that is counted at a rank, and so a place where a fault can strike.
enum class Point : std::uint8_t { kSend, kControlSend, kRecv, kPoll, kArrival };
inline constexpr int kPoints = 5;
using Counts = std::array<std::uint64_t, kPoints>;

enum class FaultKind : std::uint8_t {
  kNone,
  kKill,    // the process ends: its peers see it go
  kVanish,  // the machine ends: nothing more comes, and nobody is told
  kFreeze,  // nothing moves at the rank for `lasts`
  kLose,    // nothing arrives any more from `who` at `other`
  kCut,     // nothing arrives any more between `who` and `other`, either way
  kApart,   // nothing arrives any more from or at `who`
  kSlow,    // from the start: what `who` sends and receives takes its time, `rate` bytes per second
  kDamage,  // the next message of `who` is changed on its way
  kForge,   // a message that `who` never sent arrives on the control channel of `other`
  kClose,   // `who` closes its session in good order (the world does that)
};
std::string_view name(FaultKind kind);

enum class Damage : std::uint8_t { kFlip, kCut, kLengthen, kReplay, kNoise };

struct Fault {
  FaultKind kind = FaultKind::kNone;
  Rank who = 0, other = 0;
  Point point = Point::kSend;
  std::uint64_t count = 0;   // strikes when so many were counted
  int round = -1, step = 0;  // or here, in the rank's own course of calls (world.h), if round >= 0
  Nanoseconds lasts{0};
  double rate = 0;
  bool control = false;  // kDamage: a control message, else a frame
  Damage damage = Damage::kFlip;
  std::uint64_t draw = 0;  // which bit, how many bytes
};

class Network {
 public:
  Network(int world, const Weather& weather, const Fault& fault, bool stepped, Nanoseconds most_time);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::unique_ptr<Transport> open(Rank rank);
  // body(rank) on a thread per rank.
  void run(const std::function<void(Rank)>& body);
  // The fault strikes now, at a step of its rank's own course.
  void strike();

  Time now() const;
  bool struck() const { return struck_; }
  Time struck_at() const { return struck_at_; }
  bool hung() const { return hung_; }  // most_time was over: nothing in this world would have ended
  const Counts& counts(Rank r) const { return places_[static_cast<std::size_t>(r)].counts; }
  std::string changed() const { return changed_; }  // what damage or forgery hit

 private:
  friend class Line;
  using Lock = std::unique_lock<std::mutex>;
  struct Message {
    ByteView bytes;
    std::vector<std::uint8_t> copy;
    OpId op = 0;
    bool eager = false;
    bool withdrawn = false;  // nothing but its place is left, and its send is answered
    Time from, until;        // on its way
    void withdraw() {
      bytes = {};
      eager = withdrawn = true;
    }
  };
  struct Receive {
    Bytes into;
    OpId op = 0;
  };
  struct Lane {  // from one rank to another on one channel
    std::deque<Message> flying, arrived;
    std::deque<Receive> receives;
  };
  struct Done {
    std::uint64_t order;  // completions of equal order keep theirs
    Completion completion;
  };
  struct Place {
    std::map<std::pair<Rank, Channel>, Lane> in;
    std::deque<Done> done;
    std::condition_variable turn;
    std::vector<char> gone;  // by peer: this rank knows
    std::vector<std::uint64_t> received;
    std::vector<Time> link_free;  // by peer: when the link to it is free again
    Time deadline, frozen_until;
    bool polling = false, granted = false, woken = false, entering = false, away = true;
    bool dead = false, closed = false, silent = false, opened = false, windowed = false;
    std::uint64_t sent = 0;
    Counts counts{};
    std::vector<std::uint8_t> last_control;
  };
  struct Departure {  // `who` is gone, and `to` has not noticed yet
    Rank who, to;
    Time at;
  };
  struct Event {
    Lane* lane = nullptr;
    Rank from = 0, to = 0;
    std::size_t departure = 0;
  };

  Place& at(Rank r) { return places_[static_cast<std::size_t>(r)]; }
  bool frozen(Rank r) { return at(r).frozen_until > now_; }
  bool lost(Rank from, Rank to) const;
  std::uint64_t draw(std::uint64_t n) { return n <= 1 ? 0 : rng_() % n; }
  static std::uint64_t order(Rank peer, Channel channel, bool send) {
    return std::uint64_t{channel} << 16 | static_cast<std::uint64_t>(peer) << 1 | (send ? 1 : 0);
  }
  void done(Rank r, std::uint64_t o, OpId op, std::size_t bytes, Status status = {});

  Status send(Rank me, Rank peer, Channel channel, ByteView bytes, OpId op);
  Status recv(Rank me, Rank peer, Channel channel, Bytes into, OpId op);
  std::size_t poll(Rank me, std::span<Completion> out, Nanoseconds wait);
  void window(Rank me, std::size_t bytes);
  void wake(Rank me);
  void cancel(Rank me, OpId op);
  std::uint64_t bytes_received(Rank me, Rank peer);
  void close(Rank me);

  void count(Rank me, Point point);
  void strike_locked();
  void leave(Rank who, bool silent, bool orderly);
  void forge();
  bool damage(Message& m, Rank from, Rank to, bool control);
  bool can_arrive(Lane& lane, Rank from, Rank to);
  void arrive(Lane& lane, Rank from, Rank to, Channel channel);
  void match(Lane& lane, Rank from, Rank to, Channel channel);
  void notice(const Departure& d);
  bool runnable(Place& p, Rank r);
  std::vector<Rank> runnable_ranks();
  bool one_event();  // false: nothing can arrive now
  bool advance();    // false: nothing will ever happen
  void schedule();   // stepped: gives the turn to somebody
  void grant(Rank r);
  void end_all();
  bool all_away() const;
  void pass_time();
  void keep_time();  // threaded

  mutable std::mutex mutex_;
  std::condition_variable keeper_;
  const Weather weather_;
  const Fault fault_;
  const bool stepped_;
  const Nanoseconds most_time_;
  std::mt19937_64 rng_;
  std::deque<Place> places_;
  std::vector<Departure> departures_;
  Time start_, now_;
  std::uint64_t activity_ = 0, polls_ = 0;
  std::size_t begun_ = 0;  // ranks
  bool struck_ = false, armed_ = false, hung_ = false, stop_ = false;
  Time struck_at_;
  std::string changed_;
  Rank next_ = 0;  // without turns: who is looked at first
};

}  // namespace tithe::chaos
