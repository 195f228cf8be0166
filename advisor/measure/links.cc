// SPDX-License-Identifier: Apache-2.0
// Measures links over an open transport. Barriers separate the parts, so that only the measured messages are in flight.
#include "advisor/measure/links.h"

#include <algorithm>
#include <chrono>

#include "advisor/measure/codec_speed.h"
#include "base/quantile.h"

namespace tithe::bench {
namespace {

using sim::thread_seconds;

constexpr Channel kAlone = 1, kTogether = 2, kRounds = 3;
constexpr int kRoundsOfAKind = 5;
constexpr double kPause = 0.03;     // seconds before a round, so that queues of the previous round drain
constexpr double kShortest = 1e-6;  // seconds: a lower latency is noise
constexpr int kTurns = 30;          // round trips of a small message

class Probe {
 public:
  Probe(Transport& transport, const LinkOptions& options) : transport_(transport), options_(options) {}

  Status send(Channel channel, Rank to, ByteView bytes) {
    TITHE_TRY(transport_.send(to, channel, bytes, ++last_));
    return wait(last_, to);
  }
  Status recv(Channel channel, Rank from, Bytes into) {
    TITHE_TRY(transport_.recv(from, channel, into, ++last_));
    return wait(last_, from);
  }

  // Bytes per second received from `from` while the same amount goes to `to`, `count` messages per peer. Two messages
  // per peer are in flight, so that none waits for the previous one. With `in_step`, only one is, and the next one
  // starts when it and its counterpart have completed, as with ranks that wait for each other's results. The first two
  // messages per peer fill the links' buffers and are not counted. 0: a message failed. `room` holds two messages per
  // peer.
  double flood(std::span<const Rank> to, ByteView message, std::span<const Rank> from, Bytes room, int count,
               bool in_step) {
    constexpr std::size_t kFirst = 2;
    const std::size_t under_way = in_step ? 1 : 2;
    const std::size_t each = kFirst + static_cast<std::size_t>(count);
    const std::size_t all = each * from.size(), first = kFirst * from.size();
    std::vector<std::size_t> posted(from.size()), arrived(from.size()), given(to.size()), left(to.size());
    std::size_t received = 0, sent = 0;
    double begin = seconds(), last_received = begin, rate = 0;
    const OpId base = last_ + 1;
    last_ += 2 * std::max(to.size(), from.size()) + 2;
    while (received < all || sent < each * to.size()) {
      Status status;
      const auto over = [&](const std::vector<std::size_t>& counts, std::size_t k) {
        return in_step ? std::min(arrived[k], left[k]) : counts[k];
      };
      for (std::size_t k = 0; k < from.size(); ++k)
        for (; posted[k] < std::min(each, over(arrived, k) + under_way) && status.ok(); ++posted[k]) {
          const std::size_t at = (k * under_way + posted[k] % under_way) * message.size();
          status = transport_.recv(from[k], kTogether, room.subspan(at, message.size()), base + 2 * k);
        }
      for (std::size_t k = 0; k < to.size(); ++k)
        for (; given[k] < std::min(each, over(left, k) + under_way) && status.ok(); ++given[k])
          status = transport_.send(to[k], kTogether, message, base + 2 * k + 1);
      Completion done[16];
      const std::size_t n = status.ok() ? transport_.poll(done, std::chrono::milliseconds(100)) : 0;
      for (std::size_t k = 0; k < n; ++k) {
        if (done[k].op < base) continue;
        if (!done[k].status.ok()) status = done[k].status;
        last_received = seconds();
        const auto which = static_cast<std::size_t>((done[k].op - base) / 2);
        if ((done[k].op - base) % 2 == 1) {
          ++left[which];
          ++sent;
          continue;
        }
        ++arrived[which];
        if (++received == first) begin = last_received;
        if (received == all)
          rate = static_cast<double>((all - first) * message.size()) / (last_received - begin);
      }
      if (!status.ok() || seconds() - last_received > options_.patience) {
        for (OpId op = base; op <= last_; ++op) transport_.cancel(op);
        return 0;
      }
    }
    return rate;
  }

  // Sends a message to each of `to` while one comes from each of `from`. Returns the seconds until all are complete; 0:
  // one failed.
  double round(std::span<const Rank> to, ByteView message, std::span<const Rank> from, Bytes room) {
    const double begin = seconds();
    const OpId base = last_ + 1;
    Status status;
    for (std::size_t k = 0; k < from.size() && status.ok(); ++k)
      status = transport_.recv(from[k], kRounds, room.subspan(k * message.size(), message.size()), ++last_);
    for (std::size_t k = 0; k < to.size() && status.ok(); ++k)
      status = transport_.send(to[k], kRounds, message, ++last_);
    double last_received = begin;
    for (std::size_t left = to.size() + from.size(); left > 0 && status.ok();) {
      Completion done[16];
      const std::size_t n = transport_.poll(done, std::chrono::milliseconds(100));
      for (std::size_t k = 0; k < n; ++k) {
        if (done[k].op < base) continue;
        if (!done[k].status.ok()) status = done[k].status;
        last_received = seconds();
        --left;
      }
      if (seconds() - last_received > options_.patience) status = {Code::kTimeout, "no message arrived"};
    }
    if (status.ok()) return last_received - begin;
    for (OpId op = base; op <= last_; ++op) transport_.cancel(op);
    return 0;
  }

  // Polls the transport for the given time, so that it accepts unexpected messages.
  void idle(double for_seconds) {
    const double begin = seconds();
    while (seconds() - begin < for_seconds) {
      Completion done[4];
      static_cast<void>(transport_.poll(done, std::chrono::milliseconds(1)));
    }
  }

  double seconds() const {
    return std::chrono::duration<double>(transport_.now().time_since_epoch()).count();
  }

 private:
  // Waits until the operation completes. After `patience` it is cancelled.
  Status wait(OpId op, Rank peer) {
    const double begin = seconds();
    for (bool withdrawn = false;;) {
      Completion done[4];
      const std::size_t n = transport_.poll(done, std::chrono::milliseconds(100));
      for (std::size_t k = 0; k < n; ++k)
        if (done[k].op == op)
          return withdrawn && !done[k].status.ok() ? Status(Code::kTimeout, "no message arrived", peer)
                                                   : done[k].status;
      if (seconds() - begin < options_.patience) continue;
      if (withdrawn) return {Code::kTimeout, "no message arrived", peer};
      transport_.cancel(op);
      withdrawn = true;
    }
  }

  Transport& transport_;
  const LinkOptions& options_;
  OpId last_ = 0;
};

// Measures FoundTogether::late between rank 0 and `far`. `alone` is their measured link.
Status late(Probe& probe, Rank me, Rank far, bool good, const std::function<bool()>& barrier,
            LinkBuffers& buffers, const FoundLink& alone, FoundTogether& together) {
  std::vector<double> shares;
  const double expected = good ? static_cast<double>(buffers.large.size()) / alone.bytes_per_second : 0;
  Status status;
  for (int k = 0; k < 3 && good; ++k) {
    if (!barrier()) return {Code::kCancelled, "another rank failed"};
    if (!status.ok()) continue;
    if (me == 0) status = probe.send(kAlone, far, buffers.large);
    if (me != far) continue;
    probe.idle(kPause + 2 * expected);
    const double begin = probe.seconds();
    status = probe.recv(kAlone, 0, Bytes(buffers.in).first(buffers.large.size()));
    if (status.ok()) shares.push_back((probe.seconds() - begin) / expected);
  }
  if (me == far) together.late = median(shares);
  return {};
}

}  // namespace

LinkOptions options_for(double bytes_per_second) {
  constexpr double kFor = 1, kEach = 0.35, kMinMessages = 3, kMaxMessages = 60;  // seconds, messages
  constexpr double kSmallest = 1 << 16, kLargest = 1 << 22;
  LinkOptions options;
  options.bulk_bytes = static_cast<std::size_t>(std::clamp(kEach * bytes_per_second, kSmallest, kLargest));
  options.bulk_messages = static_cast<int>(std::clamp(
      kFor * bytes_per_second / static_cast<double>(options.bulk_bytes), kMinMessages, kMaxMessages));
  return options;
}

// Three parts: pairs alone; alternating rounds to the right and to all; then all to all, and the late receive.
Status measure_links(Transport& transport, const LinkOptions& options, const Barriers& barriers,
                     LinkBuffers& buffers, std::span<FoundLink> links, FoundTogether& together) {
  const std::function<bool()>& barrier = barriers.barrier;
  const Rank me = transport.rank();
  const int world = transport.world();
  const Status stopped(Code::kCancelled, "another rank failed");
  constexpr std::size_t kSmall = 64;
  buffers.small.resize(kSmall);
  buffers.large.resize(options.bulk_bytes);
  buffers.in.resize(2 * options.bulk_bytes);
  together = {};
  std::vector<double> own_times;
  const Bytes in = buffers.in;
  const auto link = [&](Rank from, Rank to) -> FoundLink& {
    return links[static_cast<std::size_t>(from) * static_cast<std::size_t>(world) +
                 static_cast<std::size_t>(to)];
  };
  Probe probe(transport, options);
  for (Rank a = 0; a < world; ++a)
    for (Rank b = a + 1; b < world; ++b) {
      if (!barrier()) return stopped;
      if (me != a && me != b) continue;
      const Rank peer = me == a ? b : a;
      Status status;
      std::vector<double> round_trips;
      const double busy = thread_seconds();
      for (int k = 0; k < kTurns && status.ok(); ++k) {
        const double begin = probe.seconds();
        if (me == a) status = probe.send(kAlone, b, buffers.small);
        if (status.ok()) status = probe.recv(kAlone, peer, in.first(kSmall));
        if (me == b && status.ok()) status = probe.send(kAlone, a, buffers.small);
        round_trips.push_back(probe.seconds() - begin);
      }
      const double own = (thread_seconds() - busy) / static_cast<double>(round_trips.size());
      own_times.push_back(own);
      FoundLink mine{.latency = std::max(kShortest, median(round_trips) / 2 - own)};
      for (const Rank from : {a, b}) {
        if (!status.ok()) break;
        const double begin = probe.seconds();
        status = me == from ? probe.send(kAlone, peer, buffers.large)
                            : probe.recv(kAlone, peer, in.first(options.bulk_bytes));
        if (me != from)
          mine.bytes_per_second = static_cast<double>(options.bulk_bytes) / (probe.seconds() - begin);
      }
      if (!status.ok()) mine = {.code = static_cast<double>(status.code())};
      link(peer, me) = mine;
    }
  if (!barriers.share()) return stopped;
  if (world == 1) return {};
  together.turn = median(own_times);
  // If either direction of a link failed, neither is used again.
  const auto good = [&](Rank x, Rank y) { return !link(x, y).failed() && !link(y, x).failed(); };
  const auto only_good = [&](std::vector<Rank> ranks) {
    std::erase_if(ranks, [&](Rank r) { return r == me || !good(me, r); });
    return ranks;
  };
  // The right neighbour is the same position on the next host; if hosts differ in size, the next rank.
  const Hosts hosts = transport.hosts();
  const int count = hosts.count(world), each = count > 1 && world % count == 0 ? world / count : 1;
  const std::vector<Rank> right = only_good({(me + each) % world}),
                          left = only_good({(me + world - each) % world});
  std::vector<Rank> others;
  for (Rank k = 1; k < world; ++k)
    if (count == 1 || hosts.of_rank((me + k) % world) != hosts.of_rank(me))
      others.push_back((me + k) % world);
  others = only_good(others);
  const ByteView whole = buffers.large;
  // The same size on all ranks.
  const ByteView share = whole.first(whole.size() / static_cast<std::size_t>(world - 1));
  std::vector<double> to_right, ratios;
  for (int k = -1; k < kRoundsOfAKind; ++k) {  // the first round opens connections
    if (!barrier()) return stopped;
    probe.idle(kPause);
    if (!barrier()) return stopped;
    const double one = probe.round(right, whole, left, in);
    if (!barrier()) return stopped;
    probe.idle(kPause);
    if (!barrier()) return stopped;
    const double all = probe.round(others, share, others, in);
    if (k < 0 || one <= 0) continue;
    to_right.push_back(one);
    const double part = static_cast<double>(others.size() * share.size()) / static_cast<double>(whole.size());
    if (all > 0) ratios.push_back(part * one / all);
  }
  if (!left.empty() && !to_right.empty())
    together.rate = static_cast<double>(whole.size()) / median(to_right);
  if (others.size() > 1 && !ratios.empty()) together.all_to_all_ratio = median(ratios);
  if (!barrier()) return stopped;
  if (!others.empty()) together.mutual = probe.flood(others, share, others, in, options.bulk_messages, true);
  Rank far = 1;  // on another host, if there is one
  while (count > 1 && hosts.of_rank(far) == hosts.of_rank(0)) ++far;
  TITHE_TRY(late(probe, me, far, good(0, far), barrier, buffers, link(0, far), together));
  return barrier() ? Status{} : stopped;
}

}  // namespace tithe::bench
