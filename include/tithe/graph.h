// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Graph says what one rank does to synchronise one partition: a strategy draws it, the engine runs it on
// real transports, a simulator can run it on a virtual clock, a planner only counts it.
//
//   pure       the same Place gives the same Graph
//   matched    the k-th send from a to b on a partition, in the order of the nodes, meets the k-th recv of b from a
//   once       each chunk is encoded at most once per rank and phase: one residual buffer is enough
//   counted    steps, frames and bytes are those stated at the top of the strategy's file
//
// The verbs are neutral to the law by which a codec's payloads combine:
//   encode(c)     a frame of what this rank holds of chunk c: its own values and all that was merged into it
//   merge(c, F)   takes the frames F into chunk c, in the order given (decode+add, sum, max, join, leader)
//   store(c, F)   the result of chunk c is the combination of the frames F, in the order given
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tithe/codec.h"
#include "tithe/transport.h"

namespace tithe {

using Chunk = int;  // a slice of the partition

enum class Op : std::uint8_t { kEncode, kSend, kRecv, kMerge, kStore };

struct Node {
  Op op;
  int arg;                  // chunk for encode, merge and store; peer for send and recv
  std::vector<int> frames;  // nodes whose frames it reads: one for send, any number for merge and store
  std::vector<int> after;   // nodes that must finish first (frames' nodes included)
};

// Where this rank stands. Chunks are numbered 0..world-1 unless the strategy uses a single one.
struct Place {
  Rank me = 0;
  int world = 1;
  Rank right() const { return (me + 1) % world; }
  Rank left() const { return (me + world - 1) % world; }
  int wrap(int i) const { return ((i % world) + world) % world; }
};

// Strategies name the data; the graph works out the order. A node that reads a chunk follows its last writer,
// a node that writes it follows its last readers too.
class Graph {
 public:
  struct Frame {
    int node;  // the encode or recv node that produced it
  };

  explicit Graph(int chunks) : chunks_(chunks), use_(static_cast<std::size_t>(chunks)) {}

  Frame encode(Chunk c);
  Frame recv(Rank peer, Chunk c);  // c: what the frame is about, so that its length can be checked
  void send(Rank peer, Frame f);
  void merge(Chunk c, std::span<const Frame> frames);  // of no frames: nothing
  void store(Chunk c, std::span<const Frame> frames);
  void merge(Chunk c, Frame f) { merge(c, {&f, 1}); }
  void store(Chunk c, Frame f) { store(c, {&f, 1}); }

  int chunks() const { return chunks_; }
  std::span<const Node> nodes() const { return nodes_; }
  Chunk chunk_of(int node) const;  // of an encode, recv, merge or store node

 private:
  struct Use {
    int writer = -1;
    std::vector<int> readers;
  };
  int add(Op op, int arg);
  void edge(int from, int to);
  void read(Chunk c, int node);
  void write(Chunk c, int node);

  int chunks_;
  std::vector<Node> nodes_;
  std::vector<Chunk> recv_chunk_;  // by node; -1 elsewhere
  std::vector<Use> use_;
};

// What a strategy's file states and the suite asserts: exact counts for one partition, one phase and `world`
// ranks. Shares are payload bytes in units of one rank's payload of the whole partition.
struct StrategyCost {
  int steps;             // longest chain of messages
  int frames_sent;       // by the rank that sends most
  int encodes;           // by the rank that encodes most
  double wire_shares;    // sent by the busiest rank, where a combination is as large as one payload
  double concat_shares;  // the same under the concat law, where a frame of k ranks' values holds k payloads
};

struct Strategy {
  std::string_view name;
  std::string_view doc;
  Graph (*draw)(const Place&);
  int (*chunks)(int world);  // chunks the partition is cut into
  StrategyCost (*cost)(int world);
  std::span<const Law> laws;  // by preference; the engine takes the first that the codec's phase supports
};

std::span<const Strategy* const> all_strategies();     // in the order of strategies.def
const Strategy* find_strategy(std::string_view name);  // nullptr: no such name

}  // namespace tithe
