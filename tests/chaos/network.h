// SPDX-License-Identifier: Apache-2.0
#pragma once
// A simulated network in one process with its own clock: a seed decides which message arrives next, and time advances
// only when no other event is possible. A timeout of seconds costs microseconds.
//
//   stepped    sessions without lanes: one rank runs at a time, chosen by the seed. The same seed gives the same run
//   threaded   sessions with lanes: ranks run concurrently, the seed chooses the arrivals; time advances when all
//              threads of the process sleep (threads.h)
//   in_order   as in tithe/seam/transport.h: delays and scheduling never change the order within a channel
//   in_place   as there: a message that is withdrawn, or lost when its sender closes, keeps its position
//   groups     a group is the set of processes in one world. Processes can be in several groups one after the other,
//              with other ranks; a message never crosses groups
//   lent       detects memory that is passed for a frame while a pending operation uses it (clash)
//
// Faults strike at points of the protocol, counted per process, not at points in time. In the first group a process's
// number is its rank.
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

struct NetworkConditions {
  std::uint64_t seed = 1;
  bool turns = false;          // the schedule and the arrivals are drawn; else in order
  Nanoseconds max_latency{0};  // of a message, drawn for each
  // Larger messages are sent when both sides have posted them; control messages at once.
  std::size_t eager_bytes = 4096;
};

// Events that are counted per process; a fault strikes at the n-th event of a kind.
enum class Point : std::uint8_t { kSend, kControlSend, kRecv, kPoll, kArrival, kBoard };
inline constexpr int kPoints = 5;  // in every world; boards only with members (members.h)
using Counts = std::array<std::uint64_t, kPoints + 1>;

enum class FaultKind : std::uint8_t {
  kNone,
  kKill,    // the process ends: its peers detect that
  kVanish,  // the machine ends: no more messages, and no notification
  kFreeze,  // no progress at the rank for `lasts`
  kLose,    // messages from `who` to `other` no longer arrive
  kCut,     // messages between `who` and `other` no longer arrive in either direction
  kApart,   // messages from and to `who` no longer arrive
  // Messages between two halves of all processes no longer arrive: bit k of `draw` is the half of process k.
  kHalves,
  kSlow,    // from the start: `who` sends and receives at `rate` bytes per second
  kDamage,  // the next message of `who` is modified in transit
  kLate,    // the next frame of `who` in a later group is replaced by one of an earlier group
  kForge,   // a message that `who` never sent arrives on the control channel of `other`
  kClose,   // `who` closes its session in good order (done by the world)
  kDriver,  // a GPU driver call fails at `who`, the only process with tensors on a GPU (done by the world)
};
std::string_view name(FaultKind kind);

enum class Damage : std::uint8_t { kFlip, kCut, kLengthen, kReplay, kGarbage };

struct Fault {
  FaultKind kind = FaultKind::kNone;
  Rank who = 0, other = 0;
  Point point = Point::kSend;
  std::uint64_t count = 0;   // strikes at this number of events
  int round = -1, step = 0;  // or at this step of the rank's calls (world.h), if round >= 0
  Nanoseconds lasts{0};
  bool heals = false;  // a cut link recovers after `lasts`, without loss
  double rate = 0;
  bool control = false;  // kDamage: a control message, else a frame
  Damage damage = Damage::kFlip;
  std::uint64_t draw = 0;   // which bit, how many bytes
  bool with_first = false;  // strikes when the first fault does
};

class Network {
 public:
  using Faults = std::vector<Fault>;
  Network(int processes, const NetworkConditions& conditions, Faults faults, bool stepped,
          Nanoseconds max_time);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::unique_ptr<Transport> open(Rank rank);
  // Processes on the same host have the same number.
  void place_on_hosts(std::vector<std::uint64_t> host_of_process) { host_of_ = std::move(host_of_process); }
  // The transport of processes[rank] in the group with this number.
  std::unique_ptr<Transport> open(std::uint64_t number, const std::vector<int>& processes, Rank rank);
  // body(process) on a thread for each.
  void run(const std::function<void(int)>& body);
  // Strikes with a fault now, at a step of its process.
  void strike(std::size_t fault = 0);
  void sleep(int process, Nanoseconds time);
  void count(int process, Point point);

  Time now() const;
  bool dead(int process) const;
  bool can_reach(int a, int b) const;  // whether both can reach each other now
  bool struck(std::size_t fault = 0) const { return strikes_[fault].struck; }
  Time struck_at(std::size_t fault = 0) const { return strikes_[fault].at; }
  bool hung() const { return hung_; }  // max_time has elapsed: nothing in this world would have ended
  const Counts& counts(int process) const { return processes_[static_cast<std::size_t>(process)].counts; }
  std::string changed() const { return changed_; }  // the message hit by damage or forgery
  std::string clash() const { return clash_; }      // the first memory passed twice

 private:
  friend class Line;
  using Lock = std::unique_lock<std::mutex>;
  struct Message {
    ByteView bytes;
    std::vector<std::uint8_t> copy;
    OpId op = 0;
    bool eager = false;
    bool withdrawn = false;  // only its position remains; its send is complete
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
  struct MemoryUse {  // memory in use by an operation, until its completion was returned
    ByteView bytes;
    bool written = false;
  };
  struct Done {
    std::uint64_t order;  // completions with equal order keep their order
    Completion completion;
  };
  struct Group;
  struct End {  // of a rank in a group
    Group* group = nullptr;
    Rank rank = 0;
    int process = 0;
    std::map<std::pair<Rank, Channel>, Lane> in;
    std::deque<Done> done;
    std::map<OpId, MemoryUse> memory_uses;  // by operation with a frame
    std::vector<char> gone;                 // by peer: this rank has detected the loss
    std::vector<std::uint64_t> received;
    std::vector<Time> link_free;  // by peer: when the link to it is free again
    bool woken = false, over = false, windowed = false;
    std::uint64_t sent = 0;
    std::vector<std::uint8_t> last_control;
    // To a process; for kLate.
    std::map<std::pair<int, Channel>, std::vector<std::vector<std::uint8_t>>> frames;
  };
  struct Group {
    std::deque<End> ends;  // by rank
    bool over = false;     // all of them are
    End& at(Rank r) { return ends[static_cast<std::size_t>(r)]; }
  };
  struct Process {
    std::condition_variable turn;
    Time deadline, frozen_until;
    End* polls = nullptr;  // set while it sleeps in a poll
    bool polling = false, granted = false, entering = false, away = true;
    bool dead = false, silent = false, orderly = false;
    Counts counts{};
  };
  struct Strike {  // of faults_, by number
    bool struck = false, armed = false;
    Time at;
  };
  struct Departure {  // `who` is gone, and `to` has not detected it yet
    End *who, *to;
    Time at;
  };
  struct Event {
    Lane* lane = nullptr;
    End *from = nullptr, *to = nullptr;
    std::size_t departure = 0;
  };

  Process& at(int process) { return processes_[static_cast<std::size_t>(process)]; }
  const Process& at(int process) const { return processes_[static_cast<std::size_t>(process)]; }
  static End& peer(const End& end, Rank r) { return end.group->at(r); }
  bool frozen(int process) const { return at(process).frozen_until > now_; }
  bool cut(int from, int to, bool for_ever) const;
  bool cut(const End& from, const End& to) const { return cut(from.process, to.process, false); }
  std::uint64_t draw(std::uint64_t n) { return n <= 1 ? 0 : rng_() % n; }
  static std::uint64_t order(Rank peer, Channel channel, bool send) {
    return std::uint64_t{channel} << 16 | static_cast<std::uint64_t>(peer) << 1 | (send ? 1 : 0);
  }
  static void done(End& end, std::uint64_t o, OpId op, std::size_t bytes, Status status = {});

  void track_memory(End& mine, Channel channel, OpId op, const MemoryUse& loan);
  Status send(End& mine, Rank peer, Channel channel, ByteView bytes, OpId op);
  Status recv(End& mine, Rank peer, Channel channel, Bytes into, OpId op);
  std::size_t poll(End& mine, std::span<Completion> out, Nanoseconds wait);
  void suspend(Lock& lock, Process& p, End* polls, Nanoseconds wait);
  void window(End& mine, std::size_t bytes);
  void wake(End& mine);
  void cancel(End& mine, OpId op);
  std::uint64_t bytes_received(End& mine, Rank peer);
  void close(End& mine);

  void count_locked(int process, Point point);
  void strike_locked(std::size_t fault);
  void end(int process, bool silent, bool orderly);
  void depart(End& mine, bool silent, bool orderly);
  void forge(const Fault& fault);
  bool damage(Message& m, const End& from, const End& to, bool control);
  bool late(Message& m, End& from, const End& to, Channel channel);
  bool can_arrive(Lane& lane, const End& from, const End& to);
  void arrive(Lane& lane, End& from, End& to, Channel channel);
  void match(Lane& lane, End& from, End& to, Channel channel);
  static void notify(const Departure& d);
  bool runnable(const Process& p) const;
  std::vector<int> runnable_processes();
  bool one_event();  // false: nothing can arrive now
  bool advance();    // false: no event is possible any more
  void schedule();   // stepped: selects the next process to run
  void grant(int process);
  void end_all();
  bool all_away() const;
  void pass_time();
  void run_clock();  // threaded

  mutable std::mutex mutex_;
  std::condition_variable keeper_;
  const NetworkConditions conditions_;
  const Faults faults_;
  std::vector<Strike> strikes_;
  const bool stepped_;
  const Nanoseconds max_time_;
  std::mt19937_64 rng_;
  std::deque<Process> processes_;
  std::vector<std::uint64_t> host_of_;  // empty: each its own
  std::map<std::pair<std::uint64_t, std::vector<int>>, Group> groups_;
  std::vector<Departure> departures_;
  Time start_, now_;
  std::uint64_t activity_ = 0, polls_ = 0;
  std::size_t begun_ = 0;  // processes
  bool hung_ = false, stop_ = false;
  std::string changed_, clash_;
  int next_ = 0;  // without `turns`: the process to consider first
};

}  // namespace tithe::chaos
