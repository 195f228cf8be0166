// SPDX-License-Identifier: Apache-2.0
// server: parameter servers. Co-located: rank c sums chunk c for all ranks. Separate: the last K ranks are servers
// and have no gradients; the other W ranks are workers.
//
//                    co-located                          separate
//   chunks           N                                   K
//   steps            2 (0 when alone)                    2
//   frames per rank  2(N-1) sent, N encoded, N-1         a worker sends and encodes K; a server sends N-1, encodes
//                    merged in one pass, N stored        1, merges W in one pass; all store K
//   bytes per rank   2(N-1)/N of one payload             a worker sends 1 payload, a server (N-1)/K
//   under concat     (N-1)(N+1)/N, since a sum           a server sends (N-1)(W+1)/K: its residual is a part of the
//                    contains its summands               frame too
//   needs            in-order channels between all pairs, or between servers and all others
//   world 1          encodes and stores its only chunk, so that rounding and feedback are the same as in larger worlds
//
// Sums are merged in the order of ranks, whichever frame arrives first. Sends begin with the right neighbour, so that
// at any moment ranks send to different servers. A separate server also receives the sums of the other servers: so it
// has the same results as all ranks, and drops the same rounds.
#include <algorithm>

#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw_together(const Place& p) {
  Graph g(p.world);

  for (int i = 1; i < p.world; ++i) {
    const Rank server = p.wrap(p.me + i);
    g.send(server, g.encode(server));
  }

  std::vector<Graph::Frame> pushed;
  for (Rank worker = 0; worker < p.world; ++worker)
    if (worker != p.me) pushed.push_back(g.recv(worker, p.me));
  g.merge(p.me, pushed);
  share_chunks(g, p);
  return g;
}

Graph draw_apart(const Place& p) {
  Graph g(p.servers);
  const auto server_of = [&](Chunk c) { return p.workers() + c; };
  const auto chunk = [&](int i) { return (p.me + i) % p.servers; };

  if (p.works())
    for (int i = 0; i < p.servers; ++i) g.send(server_of(chunk(i)), g.encode(chunk(i)));

  for (Chunk c = 0; c < p.servers; ++c) {
    if (server_of(c) != p.me) continue;
    std::vector<Graph::Frame> pushed;
    for (Rank worker = 0; worker < p.workers(); ++worker) pushed.push_back(g.recv(worker, c));
    g.merge(c, pushed);
    const Graph::Frame sum = g.encode(c);
    for (int i = 1; i < p.world; ++i) g.send(p.wrap(p.me + i), sum);
    g.store(c, sum);
  }

  for (int i = 0; i < p.servers; ++i)
    if (const Rank server = server_of(chunk(i)); server != p.me) g.store(chunk(i), g.recv(server, chunk(i)));
  return g;
}

Graph draw(const Place& p) { return p.servers > 0 ? draw_apart(p) : draw_together(p); }

int chunks(const Place& p) { return p.servers > 0 ? p.servers : p.world; }

int remote_ranks(const Place& p, Rank me) {  // the number of ranks on other hosts
  int n = 0;
  for (Rank r = 0; r < p.world; ++r) n += p.host_of(r) != p.host_of(me) ? 1 : 0;
  return n;
}

// With separate servers: the payloads that leave a host with these ranks. A server's frame contains `joined` payloads
// of its chunk.
double crossing_payloads(const Place& p, const std::vector<Rank>& ranks, int joined) {
  double frames = 0;
  for (const Rank r : ranks) {
    if (r >= p.workers()) {
      frames += remote_ranks(p, r) * joined;
      continue;
    }
    for (Rank server = p.workers(); server < p.world; ++server)
      frames += p.host_of(server) != p.host_of(r) ? 1 : 0;
  }
  return frames / p.servers;
}

// Without separate servers, each of N ranks owns 1/N of the values: a rank sends N - 1 shares of 1/N to the owners,
// and N - 1 copies of its result. With S servers, a worker sends 1/S to each server, and a server sends its result of
// size 1/S to all other ranks. Under the concat law a result has the payloads of all contributing ranks.
StrategyCost cost(const Place& p) {
  const int others = p.world - 1;
  if (p.servers > 0) {
    const double shares = 1.0 * others / p.servers;
    int senders = 0;
    for (Rank r = p.workers(); r < p.world; ++r) senders = std::max(senders, remote_ranks(p, r));
    const auto crossing = [&](int joined) {
      return busiest_host(
          p, [&](const std::vector<Rank>& ranks) { return crossing_payloads(p, ranks, joined); });
    };
    return {.steps = 2,
            .frames_sent = std::max(p.servers, others),
            .encodes = p.servers,
            .wire_shares = std::max(1.0, shares),
            .concat_shares = std::max(1.0, shares * (p.workers() + 1)),
            .link_shares = crossing(1),
            .concat_link_shares = crossing(p.workers() + 1),
            .senders = senders,
            .roundings = 2};
  }
  const auto crossing = [&](double joined) {
    return busiest_host(p, [&](const std::vector<Rank>& ranks) {
      return static_cast<double>(ranks.size()) * elsewhere(p, ranks) * (1 + joined) / p.world;
    });
  };
  return {.steps = p.world > 1 ? 2 : 0,
          .frames_sent = 2 * others,
          .encodes = p.world,
          .wire_shares = 2.0 * others / p.world,
          .concat_shares = 1.0 * others * (p.world + 1) / p.world,
          .link_shares = crossing(1),
          .concat_link_shares = crossing(p.world),
          .senders = max_remote_ranks(p),
          .roundings = 2};
}

}  // namespace

const Strategy server_strategy = {.name = "server",
                                  .doc = "one chunk per rank, which sums it for all ranks",
                                  .draw = draw,
                                  .chunks = chunks,
                                  .cost = cost,
                                  .laws = kSumsFirst,
                                  .by_rank = true,
                                  .serves = true};

}  // namespace tithe
