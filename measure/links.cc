// SPDX-License-Identifier: Apache-2.0
#include "measure/links.h"

#include <algorithm>
#include <chrono>

namespace tithe::bench {
namespace {

constexpr Channel kAlone = 1, kTogether = 2;
constexpr int kTurns = 30;  // of a small message, there and back

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

  // `count` messages each to the right and from the left, two of them under way, so that none waits for the one before;
  // the first two fill what a link lets through at once. A side without a peer is left out.
  double stream(Rank to, ByteView out, Rank from, Bytes in, int count) {
    constexpr int kUnderWay = 2, kFirst = 2;
    const int all = kFirst + count;
    const std::size_t each = in.size() / kUnderWay;
    int sent = to < 0 ? all : 0, received = from < 0 ? all : 0, sends = sent, receives = received;
    double begin = seconds(), heard = begin, rate = 0;
    const OpId sending = ++last_, receiving = ++last_;
    while (sent < all || received < all) {
      Status status;
      for (; receives < all && receives < received + kUnderWay && status.ok(); ++receives)
        status = transport_.recv(from, kTogether,
                                 in.subspan(static_cast<std::size_t>(receives % kUnderWay) * each, each),
                                 receiving);
      for (; sends < all && sends < sent + kUnderWay && status.ok(); ++sends)
        status = transport_.send(to, kTogether, out, sending);
      Completion done[4];
      const std::size_t n = status.ok() ? transport_.poll(done, std::chrono::milliseconds(100)) : 0;
      for (std::size_t k = 0; k < n; ++k) {
        if (!done[k].status.ok()) status = done[k].status;
        heard = seconds();
        if (done[k].op == sending) ++sent;
        if (done[k].op != receiving) continue;
        if (++received == kFirst) begin = heard;
        if (received == all) rate = count * static_cast<double>(each) / (heard - begin);
      }
      if (!status.ok() || seconds() - heard > options_.patience) {
        transport_.cancel(sending);
        transport_.cancel(receiving);
        return 0;
      }
    }
    return rate;
  }

  double seconds() const {
    return std::chrono::duration<double>(transport_.now().time_since_epoch()).count();
  }

 private:
  // Until the operation has its answer. One that has none in time is withdrawn.
  Status wait(OpId op, Rank peer) {
    const double begin = seconds();
    for (bool withdrawn = false;;) {
      Completion done[4];
      const std::size_t n = transport_.poll(done, std::chrono::milliseconds(100));
      for (std::size_t k = 0; k < n; ++k)
        if (done[k].op == op)
          return withdrawn && !done[k].status.ok() ? Status(Code::kTimeout, "nothing came", peer)
                                                   : done[k].status;
      if (seconds() - begin < options_.patience) continue;
      if (withdrawn) return {Code::kTimeout, "nothing came", peer};
      transport_.cancel(op);
      withdrawn = true;
    }
  }

  Transport& transport_;
  const LinkOptions& options_;
  OpId last_ = 0;
};

}  // namespace

Status measure_links(Transport& transport, const LinkOptions& options, const std::function<bool()>& meet,
                     LinkRoom& room, std::span<FoundLink> links, double& together) {
  const Rank me = transport.rank();
  const int world = transport.world();
  const Status stopped(Code::kCancelled, "another rank failed");
  constexpr std::size_t kSmall = 64;
  room.small.resize(kSmall);
  room.large.resize(options.bulk_bytes);
  room.in.resize(2 * options.bulk_bytes);
  const Bytes in = room.in;
  const auto link = [&](Rank from, Rank to) -> FoundLink& {
    return links[static_cast<std::size_t>(from) * static_cast<std::size_t>(world) +
                 static_cast<std::size_t>(to)];
  };
  Probe probe(transport, options);
  for (Rank a = 0; a < world; ++a)
    for (Rank b = a + 1; b < world; ++b) {
      if (!meet()) return stopped;
      if (me != a && me != b) continue;
      const Rank peer = me == a ? b : a;
      Status status;
      std::vector<double> turns;
      for (int k = 0; k < kTurns && status.ok(); ++k) {
        const double begin = probe.seconds();
        if (me == a) status = probe.send(kAlone, b, room.small);
        if (status.ok()) status = probe.recv(kAlone, peer, in.first(kSmall));
        if (me == b && status.ok()) status = probe.send(kAlone, a, room.small);
        turns.push_back(probe.seconds() - begin);
      }
      std::sort(turns.begin(), turns.end());
      FoundLink mine{.latency = turns[turns.size() / 2] / 2};
      for (const Rank from : {a, b}) {
        if (!status.ok()) break;
        const double begin = probe.seconds();
        status = me == from ? probe.send(kAlone, peer, room.large)
                            : probe.recv(kAlone, peer, in.first(options.bulk_bytes));
        if (me != from)
          mine.bytes_per_second = static_cast<double>(options.bulk_bytes) / (probe.seconds() - begin);
      }
      if (!status.ok()) mine = {.code = static_cast<double>(status.code())};
      link(peer, me) = mine;
    }
  if (!meet()) return stopped;
  together = 0;
  if (world == 1) return {};
  // Where either direction failed, neither is used again.
  const auto good = [&](Rank x, Rank y) { return !link(x, y).failed() && !link(y, x).failed(); };
  const Rank right = (me + 1) % world, left = (me + world - 1) % world;
  together = probe.stream(good(me, right) ? right : -1, room.large, good(left, me) ? left : -1, in,
                          options.bulk_messages);
  return meet() ? Status{} : stopped;
}

}  // namespace tithe::bench
