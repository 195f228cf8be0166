// SPDX-License-Identifier: Apache-2.0
// loop: a transport whose ranks are threads of one process.
//
// A small message is copied by send(). A large one is copied by the receiver, outside the lock, once both send and
// receive are posted. So the send of a large message completes only after its receive was posted, as on a real network.
// A withdrawn message leaves an empty message in its lane, which tells the receiver of the withdrawal.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "base/fifo.h"
#include "base/usable_cores.h"
#include "transport/long_messages.h"
#include "transport/transports.h"

namespace tithe {
namespace loop {
namespace {

constexpr std::size_t kEagerBytes = 4096;
// Eager buffers are allocated in batches of this size, since the number in use depends on the ranks' speeds.
constexpr std::size_t kBuffers = 16;
// Completions of a rank, and lanes with a match, that can be queued without an allocation.
constexpr std::size_t kCompletions = 256, kMatched = 64;
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::hours(1);

struct Message {
  ByteView bytes;
  OpId op = 0;
  std::vector<std::uint8_t> copy;  // eager: holds the bytes; the send is already complete
  bool eager = false;
  bool withdrawn = false;  // an empty message in the lane; its send is already complete
  void withdraw() {
    bytes = {};
    eager = withdrawn = true;
  }
};

struct Receive {
  Bytes into;
  OpId op = 0;
};

// Messages from one rank to another on one channel.
struct Lane {
  Fifo<Message> messages;
  Fifo<Receive> receives;
  bool listed = false;
};

// The state of one rank.
struct Place {
  explicit Place(std::size_t world) : received(world) {
    done.reserve(kCompletions);
    matched.reserve(kMatched);
  }
  std::condition_variable changed;
  std::map<std::pair<Rank, Channel>, Lane> in;
  Fifo<std::pair<Rank, Lane*>> matched;  // lanes with a message and a receive
  Fifo<Completion> done;
  bool woken = false;
  bool closed = false;
  int being_read = 0;  // number of this rank's send buffers that other ranks are copying from
  std::uint64_t sent = 0;
  std::vector<std::uint64_t> received;  // by rank
};

struct Hub {
  explicit Hub(int world) {
    for (Rank r = 0; r < world; ++r) places.emplace_back(static_cast<std::size_t>(world));
  }
  Place& at(Rank r) { return places[static_cast<std::size_t>(r)]; }
  std::mutex mutex;
  std::deque<Place> places;
  std::vector<std::uint8_t> take_spare() {
    if (spare.empty()) {
      buffers += kBuffers;
      spare.reserve(buffers);
      spare.resize(kBuffers);
      for (auto& buffer : spare) buffer.reserve(kEagerBytes);
    }
    std::vector<std::uint8_t> buffer = std::move(spare.back());
    spare.pop_back();
    return buffer;
  }
  std::vector<std::vector<std::uint8_t>> spare;  // buffers of eager messages
  std::size_t buffers = 0;                       // buffers allocated so far
};

Status gone(Rank peer) { return {Code::kPeerLost, "it closed in good order", peer}; }
Status withdrawn(Rank peer) { return {Code::kCancelled, "it withdrew its message", peer}; }

class Loop final : public Transport {
 public:
  Loop(std::shared_ptr<Hub> hub, Rank me, ByteView key, const Hosts& hosts)
      : hub_(std::move(hub)), me_(me), key_(key.begin(), key.end()), hosts_(hosts) {}
  ~Loop() override;

  std::string_view kind() const override { return "loop"; }
  Rank rank() const override { return me_; }
  int world() const override { return static_cast<int>(hub_->places.size()); }
  Hosts hosts() const override { return hosts_; }
  CoresHere cores() const override { return {usable_cores(), world()}; }
  ByteView key() const override { return key_; }

  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override;
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override;
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override;
  void wake() override;
  void window(std::size_t) override {}  // a large message waits for its receive anyway
  void cancel(OpId op) override;
  Status peer_status(Rank peer) const override;
  std::uint64_t bytes_sent() const override;
  std::uint64_t bytes_received(Rank peer) const override;

 private:
  Status check_peer(Rank peer) const {
    if (peer >= 0 && peer < world() && peer != me_) return {};
    return {Code::kInvalid,
            "loop: rank " + std::to_string(peer) + " is not a peer of rank " + std::to_string(me_)};
  }
  void list(Place& to, Rank from, Lane& lane) {
    if (lane.listed || lane.messages.empty() || lane.receives.empty()) return;
    lane.listed = true;
    to.matched.push({from, &lane});
  }
  void deliver(std::unique_lock<std::mutex>& lock, Rank from, Lane& lane);
  void go_on(Place& mine, Rank from, Lane& lane);

  std::shared_ptr<Hub> hub_;
  const Rank me_;
  const std::vector<std::uint8_t> key_;
  const Hosts hosts_;
};

Status Loop::send(Rank peer, Channel channel, ByteView bytes, OpId op) {
  TITHE_TRY(check_peer(peer));
  const std::lock_guard lock(hub_->mutex);
  Place& mine = hub_->at(me_);
  Place& to = hub_->at(peer);
  mine.sent += bytes.size();
  if (to.closed) {
    mine.done.push({op, 0, gone(peer)});
    return {};
  }
  Message m{bytes, op, {}, bytes.size() <= kEagerBytes};
  if (m.eager) {
    m.copy = hub_->take_spare();
    m.copy.assign(bytes.begin(), bytes.end());
    m.bytes = m.copy;
    mine.done.push({op, 0, {}});
  }
  Lane& lane = to.in[{me_, channel}];
  lane.messages.push(std::move(m));
  list(to, me_, lane);
  if (lane.listed) to.changed.notify_all();
  return {};
}

Status Loop::recv(Rank peer, Channel channel, Bytes into, OpId op) {
  TITHE_TRY(check_peer(peer));
  const std::lock_guard lock(hub_->mutex);
  Place& mine = hub_->at(me_);
  Lane& lane = mine.in[{peer, channel}];
  if (lane.messages.empty() && hub_->at(peer).closed) {
    mine.done.push({op, 0, gone(peer)});
    return {};
  }
  lane.receives.push({into, op});
  list(mine, peer, lane);
  return {};
}

// Delivers one message of a lane that has a message and a receive. Releases the lock during the copy.
void Loop::deliver(std::unique_lock<std::mutex>& lock, Rank from, Lane& lane) {
  if (lane.messages.empty() || lane.receives.empty()) {  // the receive was withdrawn
    lane.listed = false;
    return;
  }
  Place& mine = hub_->at(me_);
  Place& source = hub_->at(from);
  Message m = lane.messages.pop();
  const Receive r = lane.receives.pop();
  if (m.withdrawn) {
    mine.done.push({r.op, 0, source.closed ? gone(from) : withdrawn(from)});
    return go_on(mine, from, lane);
  }
  const bool fits = m.bytes.size() <= r.into.size();
  if (fits && !m.bytes.empty()) {
    ++source.being_read;
    lock.unlock();
    std::memcpy(r.into.data(), m.bytes.data(), m.bytes.size());
    lock.lock();
    if (--source.being_read == 0) source.changed.notify_all();
  }
  Status status;
  if (fits)
    mine.received[static_cast<std::size_t>(from)] += m.bytes.size();
  else
    status = {Code::kTooSmall,
              "its message of " + std::to_string(m.bytes.size()) + " bytes is larger than the " +
                  std::to_string(r.into.size()) + " bytes posted for it",
              from};
  mine.done.push({r.op, m.bytes.size(), std::move(status)});
  if (m.eager) {
    hub_->spare.push_back(std::move(m.copy));
  } else {
    source.done.push({m.op, 0, {}});
    source.changed.notify_all();
  }
  go_on(mine, from, lane);
}

// Lists the lane again if it has another match. If the sender has closed and no message is left, fails the receives.
void Loop::go_on(Place& mine, Rank from, Lane& lane) {
  lane.listed = false;
  list(mine, from, lane);
  if (hub_->at(from).closed && lane.messages.empty())
    while (!lane.receives.empty()) mine.done.push({lane.receives.pop().op, 0, gone(from)});
}

std::size_t Loop::poll(std::span<Completion> out, std::chrono::nanoseconds wait) {
  std::unique_lock lock(hub_->mutex);
  Place& mine = hub_->at(me_);
  const auto until = std::chrono::steady_clock::now() + std::min(wait, kLongestWait);
  while (true) {
    while (!mine.matched.empty()) {
      const auto [from, lane] = mine.matched.pop();
      deliver(lock, from, *lane);
    }
    if (!mine.done.empty() || mine.woken) break;
    if (wait.count() <= 0 || mine.changed.wait_until(lock, until) == std::cv_status::timeout) {
      if (mine.matched.empty()) break;
    }
  }
  mine.woken = false;
  std::size_t k = 0;
  while (k < out.size() && !mine.done.empty()) out[k++] = mine.done.pop();
  return k;
}

void Loop::wake() {
  const std::lock_guard lock(hub_->mutex);
  hub_->at(me_).woken = true;
  hub_->at(me_).changed.notify_all();
}

// Receives are in this rank's lanes, sends in the lanes of their destination.
void Loop::cancel(OpId op) {
  const std::lock_guard lock(hub_->mutex);
  Place& mine = hub_->at(me_);
  const auto answer = [&] { mine.done.push({op, 0, Status(Code::kCancelled, "loop: cancelled")}); };
  for (auto& [key, lane] : mine.in)
    for (std::size_t i = 0; i < lane.receives.size(); ++i)
      if (lane.receives[i].op == op) {
        lane.receives.erase(i);
        return answer();
      }
  for (Rank r = 0; r < world(); ++r) {
    if (r == me_) continue;
    for (auto& [key, lane] : hub_->at(r).in)
      for (std::size_t i = 0; key.first == me_ && i < lane.messages.size(); ++i)
        if (Message& m = lane.messages[i]; m.op == op && !m.eager) {
          m.withdraw();
          return answer();
        }
  }
}

Status Loop::peer_status(Rank peer) const {
  TITHE_TRY(check_peer(peer));
  const std::lock_guard lock(hub_->mutex);
  return hub_->at(peer).closed ? gone(peer) : Status{};
}

std::uint64_t Loop::bytes_sent() const {
  const std::lock_guard lock(hub_->mutex);
  return hub_->at(me_).sent;
}

std::uint64_t Loop::bytes_received(Rank peer) const {
  if (!check_peer(peer).ok()) return 0;
  const std::lock_guard lock(hub_->mutex);
  return hub_->at(me_).received[static_cast<std::size_t>(peer)];
}

Loop::~Loop() {
  std::unique_lock lock(hub_->mutex);
  Place& mine = hub_->at(me_);
  mine.closed = true;
  for (Rank r = 0; r < world(); ++r) {
    if (r == me_) continue;
    Place& peer = hub_->at(r);
    // Eager messages stay readable after this rank has closed; all others become withdrawn messages.
    for (auto& [key, lane] : peer.in) {
      if (key.first != me_) continue;
      for (std::size_t i = 0; i < lane.messages.size(); ++i)
        if (!lane.messages[i].eager) lane.messages[i].withdraw();
      if (lane.messages.empty())
        while (!lane.receives.empty()) peer.done.push({lane.receives.pop().op, 0, gone(me_)});
    }
    for (auto& [key, lane] : mine.in) {
      if (key.first != r) continue;
      for (std::size_t i = 0; i < lane.messages.size(); ++i)
        if (!lane.messages[i].eager) peer.done.push({lane.messages[i].op, 0, gone(me_)});
      lane.messages.clear();
    }
    peer.changed.notify_all();
  }
  mine.changed.wait(lock, [&] { return mine.being_read == 0; });
}

constexpr std::string_view kExamples[] = {"loop"};

Status usable() { return {}; }
TransportProbe probe() { return {.version = {}, .devices = {"threads"}, .problems = {}}; }

std::vector<std::unique_ptr<Transport>> open_threads(int world, ByteView key) {
  return open_loop(world, key);
}

}  // namespace
}  // namespace loop

std::vector<std::unique_ptr<Transport>> open_loop(int world, ByteView key, const Hosts& hosts) {
  const auto hub = std::make_shared<loop::Hub>(world);
  std::vector<std::unique_ptr<Transport>> all;
  for (Rank r = 0; r < world; ++r) all.push_back(std::make_unique<loop::Loop>(hub, r, key, hosts));
  return all;
}

const TransportKind loop_transport = {.name = "loop",
                                      .doc = "ranks as threads of one process, for tests and simulation",
                                      .options = {},
                                      .examples = loop::kExamples,
                                      .usable = loop::usable,
                                      .probe = loop::probe,
                                      .open = nullptr,
                                      .open_threads = loop::open_threads};

const LongMessages loop_long_messages = {SendProtocol::kPosted, loop::kEagerBytes};

}  // namespace tithe
