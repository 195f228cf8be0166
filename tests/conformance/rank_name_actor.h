// SPDX-License-Identifier: Apache-2.0
#pragma once
// Symbolic frames: their content is an expression, so a graph's sums and their order can be read from the result.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "conformance/graph_runner.h"

namespace tithe::testing {

using Draw = Graph (*)(const Place&);

// Builds and runs one graph per rank; the number of actors is the world. `like`: its hosts and servers.
template <typename A>
Outcome run_all(Draw draw, const std::vector<std::unique_ptr<A>>& actors, std::uint32_t seed,
                const Place& like = {}) {
  std::vector<Graph> graphs;
  std::vector<Actor*> plain;
  for (const auto& a : actors) {
    graphs.push_back(
        draw({static_cast<Rank>(graphs.size()), static_cast<int>(actors.size()), like.hosts, like.servers}));
    plain.push_back(a.get());
  }
  return run_graphs(graphs, plain, seed);
}

// A frame is an expression: "2" is rank 2's own values, "(2+(1))" adds a frame that contained rank 1's. If two ranks
// have the same expression, they have the same bits with any deterministic codec.
class RankNameActor : public Actor {
 public:
  RankNameActor(const std::string& own, int chunks)
      : holds_(static_cast<std::size_t>(chunks), own), result_(holds_.size()) {}
  Mail encode(Chunk c, Stage) override {
    const std::string text = std::string("(").append(holds_[at(c)]).append(")");
    return {Payload(text.begin(), text.end())};
  }
  void merge(Chunk c, Stage, const std::vector<const Mail*>& frames) override {
    for (const Mail* f : frames) holds_[at(c)].append("+").append(text_of(*f));
  }
  void store(Chunk c, const std::vector<const Mail*>& frames) override {
    stored_once_ = stored_once_ && result_[at(c)].empty();
    for (const Mail* f : frames) result_[at(c)].append("+").append(text_of(*f));
  }
  const std::vector<std::string>& result() const { return result_; }
  bool stored_once() const { return stored_once_; }

  static std::vector<int> ranks_in(const std::string& text) {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] < '0' || text[i] > '9') continue;
      std::size_t length = 0;
      ranks.push_back(std::stoi(text.substr(i), &length));
      i += length;
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

 private:
  static std::size_t at(Chunk c) { return static_cast<std::size_t>(c); }
  static std::string text_of(const Mail& mail) { return {mail[0].begin(), mail[0].end()}; }
  std::vector<std::string> holds_;
  std::vector<std::string> result_;
  bool stored_once_ = true;
};

struct GraphRun {
  Outcome outcome;
  bool sums = true;       // every result contains every rank exactly once
  bool identical = true;  // every rank's result is the same expression
};

inline GraphRun run_graph(Draw draw, int world, std::uint32_t seed, const Place& like = {}) {
  std::vector<std::unique_ptr<RankNameActor>> actors;
  for (Rank r = 0; r < world; ++r) {
    const Place at{r, world, like.hosts, like.servers};
    actors.push_back(std::make_unique<RankNameActor>(at.works() ? std::to_string(r) : "", draw(at).chunks()));
  }
  GraphRun s;
  s.outcome = run_all(draw, actors, seed, like);
  std::vector<int> everybody(static_cast<std::size_t>(world - like.servers));
  std::iota(everybody.begin(), everybody.end(), 0);
  for (const auto& a : actors) {
    s.sums = s.sums && a->stored_once();
    for (const std::string& text : a->result()) s.sums = s.sums && RankNameActor::ranks_in(text) == everybody;
    s.identical = s.identical && a->result() == actors[0]->result();
  }
  return s;
}

}  // namespace tithe::testing
