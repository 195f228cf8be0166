// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reference for graphs: runs one graph per rank over in-memory queues, one node at a time, in a random order from
// a seed. The order respects only the constraints of a Graph: `after` edges, and node order of sends and recvs
// between two ranks. The Actor defines frames and how they combine.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tithe/seam/graph.h"

namespace tithe::testing {

using Payload = std::vector<std::uint8_t>;
using Mail = std::vector<Payload>;  // one frame: its payloads, several under the concat law

// One rank's share of the work, chunk by chunk.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual Mail encode(Chunk c, Stage stage) = 0;
  virtual void merge(Chunk c, Stage stage, const std::vector<const Mail*>& frames) = 0;
  virtual void store(Chunk c, const std::vector<const Mail*>& frames) = 0;
};

struct Counts {
  int sent = 0;
  int encodes = 0;
  std::size_t payloads = 0;                             // within the frames sent
  std::map<std::pair<Stage, Rank>, std::size_t> bytes;  // of those payloads, by stage and receiver
};

struct Outcome {
  bool finished = true;        // false: some node can never run
  bool matched = true;         // false: a frame met a recv that expected another chunk
  int steps = 0;               // longest chain of messages
  std::vector<Counts> counts;  // by rank
};

inline Outcome run_graphs(const std::vector<Graph>& graphs, const std::vector<Actor*>& actors,
                          std::uint32_t seed) {
  struct Message {
    Mail mail;
    Chunk about;
    int steps;
  };
  const std::size_t world = graphs.size();
  Outcome outcome;
  outcome.counts.resize(world);
  std::vector<std::vector<bool>> done(world);
  std::vector<std::vector<int>> steps(world);  // messages on the longest chain that ends in this node
  std::vector<std::map<int, Mail>> frames(world);
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Message>> mail;
  for (std::size_t r = 0; r < world; ++r) {
    done[r].assign(graphs[r].nodes().size(), false);
    steps[r].assign(graphs[r].nodes().size(), 0);
  }

  const auto ready = [&](std::size_t r, std::size_t k) {
    const Node& node = graphs[r].nodes()[k];
    if (done[r][k]) return false;
    for (const int a : node.after)
      if (!done[r][static_cast<std::size_t>(a)]) return false;
    if (node.op != Op::kSend && node.op != Op::kRecv) return true;
    for (std::size_t j = 0; j < k; ++j) {
      const Node& earlier = graphs[r].nodes()[j];
      if (!done[r][j] && earlier.op == node.op && earlier.arg == node.arg) return false;
    }
    return node.op == Op::kSend || !mail[{static_cast<std::size_t>(node.arg), r}].empty();
  };

  const auto run = [&](std::size_t r, std::size_t k) {
    const Node& node = graphs[r].nodes()[k];
    int longest = 0;
    for (const int a : node.after) longest = std::max(longest, steps[r][static_cast<std::size_t>(a)]);
    std::vector<const Mail*> in;
    for (const int f : node.frames) in.push_back(&frames[r].at(f));
    switch (node.op) {
      case Op::kEncode:
        frames[r][static_cast<int>(k)] = actors[r]->encode(node.arg, node.stage);
        ++outcome.counts[r].encodes;
        break;
      case Op::kSend: {
        Counts& counts = outcome.counts[r];
        ++counts.sent;
        counts.payloads += in[0]->size();
        for (const Payload& p : *in[0]) counts.bytes[{node.stage, node.arg}] += p.size();
        mail[{r, static_cast<std::size_t>(node.arg)}].push_back(
            {*in[0], graphs[r].chunk_of(node.frames[0]), longest + 1});
        break;
      }
      case Op::kRecv: {
        auto& box = mail[{static_cast<std::size_t>(node.arg), r}];
        Message& letter = box.front();
        outcome.matched = outcome.matched && letter.about == graphs[r].chunk_of(static_cast<int>(k));
        longest = std::max(longest, letter.steps);
        frames[r][static_cast<int>(k)] = std::move(letter.mail);
        box.pop_front();
        break;
      }
      case Op::kMerge:
        actors[r]->merge(node.arg, node.stage, in);
        break;
      case Op::kStore:
        actors[r]->store(node.arg, in);
        break;
    }
    steps[r][k] = longest;
    outcome.steps = std::max(outcome.steps, longest);
    done[r][k] = true;
  };

  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t r = 0; r < world; ++r)
    for (std::size_t k = 0; k < done[r].size(); ++k) order.emplace_back(r, k);
  std::mt19937 rng(seed);
  for (bool progress = true; progress;) {
    progress = false;
    std::shuffle(order.begin(), order.end(), rng);
    for (const auto& [r, k] : order) {
      if (!ready(r, k)) continue;
      run(r, k);
      progress = true;
    }
    std::erase_if(order, [&](const auto& at) { return done[at.first][at.second]; });
  }
  for (const auto& [path, box] : mail) outcome.matched = outcome.matched && box.empty();
  outcome.finished = order.empty();
  return outcome;
}

}  // namespace tithe::testing
