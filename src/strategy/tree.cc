// SPDX-License-Identifier: Apache-2.0
// tree: sums go up a binary tree to rank 0, and the result goes down the tree. For small parts in large worlds, where
// the cost per message dominates.
//
//   chunks           1
//   steps            2 floor(log2 N)
//   frames           a rank sends 1 up and 1 to each of its up to two children; it encodes 1, merges its children's
//                    in one pass and stores 1
//   bytes            one payload per frame; under concat a frame up contains the payloads of all ranks of its subtree,
//                    and a frame down contains all N
//   needs            in-order channels between parents and children
//   world 1          encodes and stores, so that rounding and feedback are the same as in larger worlds
//
// Rank r is the parent of ranks 2r+1 and 2r+2, as in a heap. A rank sends at most three frames in every world; rank 0
// of an aggregator sends N-1.
#include <algorithm>
#include <bit>

#include "strategy/strategies.h"

namespace tithe {
namespace {

constexpr Rank kRoot = 0;

Rank parent(Rank r) { return (r - 1) / 2; }

std::vector<Rank> children(Rank r, int world) {
  std::vector<Rank> out;
  for (Rank child = 2 * r + 1; child <= 2 * r + 2 && child < world; ++child) out.push_back(child);
  return out;
}

Graph draw(const Place& p) {
  Graph g(1);
  std::vector<Graph::Frame> sums;
  for (const Rank child : children(p.me, p.world)) sums.push_back(g.recv(child, 0));
  g.merge(0, sums);
  Graph::Frame f = g.encode(0);
  if (p.me != kRoot) {
    g.send(parent(p.me), f);
    f = g.recv(parent(p.me), 0);
  }
  for (const Rank child : children(p.me, p.world)) g.send(child, f);
  g.store(0, f);
  return g;
}

int ranks_from(Rank r, int world) {  // the number of ranks in the subtree of r
  int n = 1;
  for (const Rank child : children(r, world)) n += ranks_from(child, world);
  return n;
}

// A rank sends one frame to its parent and one to each child. Under the concat law, the frame to the parent has the
// payloads of the rank's subtree, and a frame to a child has the payloads of all ranks.
StrategyCost cost(const Place& p) {
  const int depth = std::bit_width(static_cast<unsigned>(p.world)) - 1;
  int frames = 0;
  int concat = 0;
  for (Rank r = 0; r < p.world; ++r) {
    const int below = static_cast<int>(children(r, p.world).size());
    frames = std::max(frames, (r == kRoot ? 0 : 1) + below);
    concat = std::max(concat, (r == kRoot ? 0 : ranks_from(r, p.world)) + below * p.world);
  }
  int senders = 0;
  const auto crosses = [&](Rank a, Rank b) { return p.host_of(a) != p.host_of(b); };
  for (Rank r = 0; r < p.world; ++r) {
    int remote_links = r != kRoot && crosses(r, parent(r)) ? 1 : 0;
    for (const Rank child : children(r, p.world)) remote_links += crosses(r, child) ? 1 : 0;
    senders = std::max(senders, remote_links);
  }
  const auto crossing = [&](bool joined) {
    return busiest_host(p, [&](const std::vector<Rank>& ranks) {
      int sent = 0;
      for (const Rank r : ranks) {
        if (r != kRoot && crosses(r, parent(r))) sent += joined ? ranks_from(r, p.world) : 1;
        for (const Rank child : children(r, p.world)) sent += !crosses(r, child) ? 0 : joined ? p.world : 1;
      }
      return static_cast<double>(sent);
    });
  };
  return {.steps = 2 * depth,
          .frames_sent = frames,
          .encodes = 1,
          .wire_shares = 1.0 * frames,
          .concat_shares = 1.0 * concat,
          .link_shares = crossing(false),
          .concat_link_shares = crossing(true),
          .senders = senders,
          .roundings = 1 + depth};
}

}  // namespace

const Strategy tree_strategy = {.name = "tree",
                                .doc = "sums up a binary tree, then the result down the tree",
                                .draw = draw,
                                .chunks = one_chunk,
                                .cost = cost,
                                .laws = kSumsFirst};

}  // namespace tithe
