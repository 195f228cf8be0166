// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/graph.h"

#include <algorithm>
#include <unordered_set>

namespace tithe {
namespace {

// Removes repeated nodes and keeps the first of each. A merge of all ranks' frames has up to N nodes, so long lists
// use a set.
void once_each(std::vector<int>& nodes) {
  constexpr std::size_t kFew = 16;
  if (nodes.size() <= kFew) {
    for (std::size_t k = 1; k < nodes.size();) {
      const auto at = nodes.begin() + static_cast<std::ptrdiff_t>(k);
      if (std::find(nodes.begin(), at, nodes[k]) == at)
        ++k;
      else
        nodes.erase(at);
    }
    return;
  }
  std::unordered_set<int> seen;
  seen.reserve(nodes.size());
  std::erase_if(nodes, [&](int node) { return !seen.insert(node).second; });
}

}  // namespace

int Graph::add(Op op, int arg, Stage stage) {
  nodes_.push_back({op, arg, {}, {}, stage});
  recv_chunk_.push_back(-1);
  return static_cast<int>(nodes_.size()) - 1;
}

void Graph::edge(int from, int to) {
  if (from >= 0) nodes_[static_cast<std::size_t>(to)].after.push_back(from);
}

// The edges of a chunk: a reader runs after the last writer; a writer runs after the last writer and after all
// readers since.
void Graph::read(Chunk c, int node) {
  TITHE_ASSERT(c >= 0 && c < chunks_);
  Use& use = use_[static_cast<std::size_t>(c)];
  edge(use.writer, node);
  use.readers.push_back(node);
}

void Graph::write(Chunk c, int node) {
  TITHE_ASSERT(c >= 0 && c < chunks_);
  Use& use = use_[static_cast<std::size_t>(c)];
  edge(use.writer, node);
  for (const int reader : use.readers) edge(reader, node);
  use.writer = node;
  use.readers.clear();
}

Graph::Frame Graph::encode(Chunk c, Stage stage) {
  const int node = add(Op::kEncode, c, stage);
  read(c, node);
  return {node};
}

Graph::Frame Graph::recv(Rank peer, Chunk c, Stage stage) {
  TITHE_ASSERT(c >= 0 && c < chunks_);
  const int node = add(Op::kRecv, peer, stage);
  recv_chunk_.back() = c;
  return {node};
}

void Graph::send(Rank peer, Frame f) {
  const int node = add(Op::kSend, peer, stage_of(f));
  nodes_.back().frames.push_back(f.node);
  edge(f.node, node);
}

void Graph::take(Op op, Chunk c, std::span<const Frame> frames) {
  const int node = add(op, c, stage_of(frames[0]));
  for (const Frame f : frames) {
    nodes_.back().frames.push_back(f.node);
    edge(f.node, node);
  }
  write(c, node);
  once_each(nodes_.back().after);
}

void Graph::merge(Chunk c, std::span<const Frame> frames) {
  if (!frames.empty()) take(Op::kMerge, c, frames);
}

void Graph::store(Chunk c, std::span<const Frame> frames) {
  TITHE_ASSERT(!frames.empty());
  TITHE_ASSERT(stage_of(frames[0]) == Stage::kBetween);
  take(Op::kStore, c, frames);
}

Chunk Graph::chunk_of(int node) const {
  const Node& n = nodes_[static_cast<std::size_t>(node)];
  TITHE_ASSERT(n.op != Op::kSend);
  return n.op == Op::kRecv ? recv_chunk_[static_cast<std::size_t>(node)] : n.arg;
}

}  // namespace tithe
