// SPDX-License-Identifier: Apache-2.0
#include "strategy/strategies.h"

namespace tithe {

std::span<const Strategy* const> all_strategies() {
  static constexpr const Strategy* kAll[] = {
#define TITHE_STRATEGY(name) &name##_strategy,
#include "tithe/strategies.def"
#undef TITHE_STRATEGY
  };
  return kAll;
}

void share_chunks(Graph& g, const Place& p) {
  const Graph::Frame own = g.encode(p.me);
  for (int i = 1; i < p.world; ++i) g.send(p.wrap(p.me + i), own);
  g.store(p.me, own);
  for (int i = 1; i < p.world; ++i) {
    const Rank owner = p.wrap(p.me - i);  // in the order of arrival
    g.store(owner, g.recv(owner, owner));
  }
}

void pass_chunks_around(Graph& g, const Place& p, Chunk first) {
  Graph::Frame f = g.encode(first);
  g.store(first, f);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), f);
    const Chunk c = p.wrap(first - s - 1);
    f = g.recv(p.left(), c);
    g.store(c, f);
  }
}

void sum_around(Graph& g, const Place& p, Chunk first) {
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), g.encode(p.wrap(first - s)));
    const Chunk c = p.wrap(first - s - 1);
    g.merge(c, g.recv(p.left(), c));
  }
}

const Strategy* find_strategy(std::string_view name) {
  for (const Strategy* s : all_strategies())
    if (s->name == name) return s;
  return nullptr;
}

}  // namespace tithe
