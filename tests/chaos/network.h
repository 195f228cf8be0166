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
//   apart      people may meet again in another circle, with other ranks: what one circle says no other one hears
//   lent       it says who hands over memory for a frame that an operation under way has already (clash)
//
// Faults strike at points of the protocol, counted per person, never at points in time. In the first circle everybody's
// number is their rank.
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

// A kind of event that is counted at a person, and so a place where a fault can strike.
enum class Point : std::uint8_t { kSend, kControlSend, kRecv, kPoll, kArrival, kBoard };
inline constexpr int kPoints = 5;  // in every world; boards are the members' (members.h)
using Counts = std::array<std::uint64_t, kPoints + 1>;

enum class FaultKind : std::uint8_t {
  kNone,
  kKill,    // the process ends: its peers see it go
  kVanish,  // the machine ends: nothing more comes, and nobody is told
  kFreeze,  // nothing moves at the rank for `lasts`
  kLose,    // nothing arrives any more from `who` at `other`
  kCut,     // nothing arrives any more between `who` and `other`, either way
  kApart,   // nothing arrives any more from or at `who`
  kHalves,  // nothing arrives any more between two halves of all people: bit k of `draw` is the half of person k
  kSlow,    // from the start: what `who` sends and receives takes its time, `rate` bytes per second
  kDamage,  // the next message of `who` is changed on its way
  kLate,    // in the place of the next frame of `who` in a later circle comes one of an earlier circle
  kForge,   // a message that `who` never sent arrives on the control channel of `other`
  kClose,   // `who` closes its session in good order (the world does that)
  kDriver,  // a call of its GPU's driver fails at `who`, whose tensors alone lie on one (the world does that)
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
  bool heals = false;  // what is cut comes through again after `lasts`, and nothing was lost
  double rate = 0;
  bool control = false;  // kDamage: a control message, else a frame
  Damage damage = Damage::kFlip;
  std::uint64_t draw = 0;   // which bit, how many bytes
  bool with_first = false;  // strikes when the first fault does
};

class Network {
 public:
  using Faults = std::vector<Fault>;
  Network(int people, const Weather& weather, Faults faults, bool stepped, Nanoseconds most_time);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::unique_ptr<Transport> open(Rank rank);
  // People of one host have one number.
  void place_on_hosts(std::vector<std::uint64_t> host_of_person) { host_of_ = std::move(host_of_person); }
  // The end of people[rank] in the circle of this number.
  std::unique_ptr<Transport> open(std::uint64_t number, const std::vector<int>& people, Rank rank);
  // body(person) on a thread for each.
  void run(const std::function<void(int)>& body);
  // A fault strikes now, at a step of its person's own course.
  void strike(std::size_t fault = 0);
  void sleep(int person, Nanoseconds time);
  void count(int person, Point point);

  Time now() const;
  bool dead(int person) const;
  bool hear(int a, int b) const;  // each other, now
  bool struck(std::size_t fault = 0) const { return strikes_[fault].struck; }
  Time struck_at(std::size_t fault = 0) const { return strikes_[fault].at; }
  bool hung() const { return hung_; }  // most_time was over: nothing in this world would have ended
  const Counts& counts(int person) const { return people_[static_cast<std::size_t>(person)].counts; }
  std::string changed() const { return changed_; }  // what damage or forgery hit
  std::string clash() const { return clash_; }      // the first of memory that was lent twice

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
  struct Loan {  // of memory, until its completion was handed over
    ByteView bytes;
    bool written = false;
  };
  struct Done {
    std::uint64_t order;  // completions of equal order keep theirs
    Completion completion;
  };
  struct Circle;
  struct End {  // of a rank in a circle
    Circle* circle = nullptr;
    Rank rank = 0;
    int person = 0;
    std::map<std::pair<Rank, Channel>, Lane> in;
    std::deque<Done> done;
    std::map<OpId, Loan> loans;  // by operation with a frame
    std::vector<char> gone;      // by peer: this rank knows
    std::vector<std::uint64_t> received;
    std::vector<Time> link_free;  // by peer: when the link to it is free again
    bool woken = false, over = false, windowed = false;
    std::uint64_t sent = 0;
    std::vector<std::uint8_t> last_control;
    std::map<std::pair<int, Channel>, std::vector<std::vector<std::uint8_t>>>
        frames;  // to a person; for kLate
  };
  struct Circle {
    std::deque<End> ends;  // by rank
    bool over = false;     // all of them are
    End& at(Rank r) { return ends[static_cast<std::size_t>(r)]; }
  };
  struct Person {
    std::condition_variable turn;
    Time deadline, frozen_until;
    End* polls = nullptr;  // else it sleeps, where it is `polling`
    bool polling = false, granted = false, entering = false, away = true;
    bool dead = false, silent = false, orderly = false;
    Counts counts{};
  };
  struct Strike {  // of faults_, by number
    bool struck = false, armed = false;
    Time at;
  };
  struct Departure {  // `who` is gone, and `to` has not noticed yet
    End *who, *to;
    Time at;
  };
  struct Event {
    Lane* lane = nullptr;
    End *from = nullptr, *to = nullptr;
    std::size_t departure = 0;
  };

  Person& at(int person) { return people_[static_cast<std::size_t>(person)]; }
  const Person& at(int person) const { return people_[static_cast<std::size_t>(person)]; }
  static End& peer(const End& end, Rank r) { return end.circle->at(r); }
  bool frozen(int person) const { return at(person).frozen_until > now_; }
  bool cut(int from, int to, bool for_ever) const;
  bool cut(const End& from, const End& to) const { return cut(from.person, to.person, false); }
  std::uint64_t draw(std::uint64_t n) { return n <= 1 ? 0 : rng_() % n; }
  static std::uint64_t order(Rank peer, Channel channel, bool send) {
    return std::uint64_t{channel} << 16 | static_cast<std::uint64_t>(peer) << 1 | (send ? 1 : 0);
  }
  static void done(End& end, std::uint64_t o, OpId op, std::size_t bytes, Status status = {});

  void lend(End& mine, Channel channel, OpId op, const Loan& loan);
  Status send(End& mine, Rank peer, Channel channel, ByteView bytes, OpId op);
  Status recv(End& mine, Rank peer, Channel channel, Bytes into, OpId op);
  std::size_t poll(End& mine, std::span<Completion> out, Nanoseconds wait);
  void rest(Lock& lock, Person& p, End* polls, Nanoseconds wait);
  void window(End& mine, std::size_t bytes);
  void wake(End& mine);
  void cancel(End& mine, OpId op);
  std::uint64_t bytes_received(End& mine, Rank peer);
  void close(End& mine);

  void count_locked(int person, Point point);
  void strike_locked(std::size_t fault);
  void end(int person, bool silent, bool orderly);
  void leave(End& mine, bool silent, bool orderly);
  void forge(const Fault& fault);
  bool damage(Message& m, const End& from, const End& to, bool control);
  bool late(Message& m, End& from, const End& to, Channel channel);
  bool can_arrive(Lane& lane, const End& from, const End& to);
  void arrive(Lane& lane, End& from, End& to, Channel channel);
  void match(Lane& lane, End& from, End& to, Channel channel);
  static void notice(const Departure& d);
  bool runnable(const Person& p) const;
  std::vector<int> runnable_people();
  bool one_event();  // false: nothing can arrive now
  bool advance();    // false: nothing will ever happen
  void schedule();   // stepped: gives the turn to somebody
  void grant(int person);
  void end_all();
  bool all_away() const;
  void pass_time();
  void keep_time();  // threaded

  mutable std::mutex mutex_;
  std::condition_variable keeper_;
  const Weather weather_;
  const Faults faults_;
  std::vector<Strike> strikes_;
  const bool stepped_;
  const Nanoseconds most_time_;
  std::mt19937_64 rng_;
  std::deque<Person> people_;
  std::vector<std::uint64_t> host_of_;  // empty: each its own
  std::map<std::pair<std::uint64_t, std::vector<int>>, Circle> circles_;
  std::vector<Departure> departures_;
  Time start_, now_;
  std::uint64_t activity_ = 0, polls_ = 0;
  std::size_t begun_ = 0;  // people
  bool hung_ = false, stop_ = false;
  std::string changed_, clash_;
  int next_ = 0;  // without turns: who is looked at first
};

}  // namespace tithe::chaos
