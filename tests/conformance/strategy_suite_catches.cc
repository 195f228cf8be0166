// SPDX-License-Identifier: Apache-2.0
// The strategy suite can fail: it detects graphs with known mistakes.
#include <gtest/gtest.h>

#include "conformance/rank_name_actor.h"

namespace tithe {
namespace {

using testing::run_graph;

// `first` is the chunk, relative to this rank, that it shares first; `owner_stores` whether it decodes its
// own frame.
template <int first, bool owner_stores>
Graph wrong_ring(const Place& p) {
  Graph g(p.world);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), g.encode(p.wrap(p.me - s)));
    g.merge(p.wrap(p.me - s - 1), g.recv(p.left(), p.wrap(p.me - s - 1)));
  }
  Chunk c = p.wrap(p.me + first);
  Graph::Frame f = g.encode(c);
  if (owner_stores) g.store(c, f);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), f);
    c = p.wrap(p.me + first - 1 - s);
    f = g.recv(p.left(), c);
    g.store(c, f);
  }
  return g;
}

TEST(StrategySuiteCatches, RingThatSendsTheWrongChunk) {  // the indices as printed in the paper
  EXPECT_TRUE(run_graph(wrong_ring<1, true>, 4, 0).sums);
  EXPECT_FALSE(run_graph(wrong_ring<2, true>, 4, 0).sums);
}

TEST(StrategySuiteCatches, OwnerThatKeepsItsOwnSum) {  // published ring and server code
  EXPECT_FALSE(run_graph(wrong_ring<1, false>, 4, 0).identical);
}

Graph crossed(const Place& p) {  // rank 0 sends chunk 0 then 1, rank 1 expects 1 then 0
  Graph g(2);
  for (int i = 0; i < 2; ++i) {
    const Graph::Frame f = g.encode(i);
    g.send(1 - p.me, f);
  }
  for (int i = 0; i < 2; ++i) g.store(i, g.recv(1 - p.me, p.me == 0 ? i : 1 - i));
  return g;
}

TEST(StrategySuiteCatches, SwappedMessages) { EXPECT_FALSE(run_graph(crossed, 2, 0).outcome.matched); }

Graph waiting(const Place& p) {  // each waits for the other's frame before it encodes
  Graph g(1);
  g.merge(0, g.recv(1 - p.me, 0));
  const Graph::Frame f = g.encode(0);
  g.send(1 - p.me, f);
  g.store(0, f);
  return g;
}

TEST(StrategySuiteCatches, Deadlock) { EXPECT_FALSE(run_graph(waiting, 2, 0).outcome.finished); }

}  // namespace
}  // namespace tithe
