// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Graph says what one rank does to synchronise one partition: a strategy draws it, the engine runs it on
// real transports, a simulator can run it on a virtual clock, a planner only counts it.
//
//   pure       the same Place gives the same Graph
//   matched    the k-th send from a to b on a partition, in the order of the nodes, meets the k-th recv of b from a
//   once       each chunk is encoded at most once per rank and phase, inside a host or between hosts: one residual
//              buffer is enough
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

#include "tithe/seam/codec.h"
#include "tithe/seam/transport.h"

namespace tithe {

using Chunk = int;  // a slice of the partition

// A part has two codecs, one between hosts and one for the ranks inside a host. A frame's stage says which it is of.
// Strategies that do not treat hosts apart know the first alone. Frames inside a host are decoded and added where they
// are merged; all that is stored is of the codec between hosts.
enum class Stage : std::uint8_t { kBetween, kInside };

// The exchange of a bucket (docs/reference/sharded_rounds.md).
//   all-reduce      every rank receives the sum of the whole part
//   reduce-scatter  rank r owns chunk r of the part, and receives the sum of that chunk
//   all-gather      rank r owns chunk r of the part, and every rank receives it
enum class RoundKind : std::uint8_t { kAllReduce, kReduceScatter, kAllGather };
std::string_view name(RoundKind kind);  // "all_reduce", "reduce_scatter", "all_gather"

enum class Op : std::uint8_t { kEncode, kSend, kRecv, kMerge, kStore };

struct Node {
  Op op;
  int arg;                        // chunk for encode, merge and store; peer for send and recv
  std::vector<int> frames;        // nodes whose frames it reads: one for send, any number for merge and store
  std::vector<int> after;         // nodes that must finish first (frames' nodes included)
  Stage stage = Stage::kBetween;  // of its frames
};

// This rank's position, and the ranks of each host. Chunks are numbered 0..world-1 unless the strategy uses others.
struct Place {
  Rank me = 0;
  int world = 1;
  const Hosts* hosts = nullptr;  // none: each rank has one of its own
  int servers = 0;               // the last N ranks have no values of their own
  int workers() const { return world - servers; }
  bool works() const { return me < workers(); }
  Rank right() const { return (me + 1) % world; }
  Rank left() const { return (me + world - 1) % world; }
  int host_of(Rank r) const { return hosts == nullptr ? r : hosts->of_rank(r); }
  std::vector<std::vector<Rank>> ranks_by_host() const {
    return (hosts == nullptr ? Hosts{} : *hosts).ranks(world);
  }
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

  Frame encode(Chunk c, Stage stage = Stage::kBetween);
  Frame recv(Rank peer, Chunk c,
             Stage stage = Stage::kBetween);  // c: the frame's chunk, so that its length can be checked
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
  int add(Op op, int arg, Stage stage);
  Stage stage_of(Frame f) const { return nodes_[static_cast<std::size_t>(f.node)].stage; }
  void edge(int from, int to);
  void read(Chunk c, int node);
  void write(Chunk c, int node);

  int chunks_;
  std::vector<Node> nodes_;
  std::vector<Chunk> recv_chunk_;  // by node; -1 elsewhere
  std::vector<Use> use_;
};

// A strategy's costs, which its file states and the suite asserts: exact counts for one partition and one phase.
// Shares are payload bytes in units of one rank's payload of the whole partition.
struct StrategyCost {
  int steps;             // longest chain of messages
  int frames_sent;       // by the rank that sends most
  int encodes;           // by the rank that encodes most
  double wire_shares;    // sent by the busiest rank, where a combination is as large as one payload
  double concat_shares;  // the same under the concat law, where a frame of k ranks' values holds k payloads
  // If the strategy has two levels, the two count the shares that leave a rank's host; inside the host, the rank that
  // sends most sends:
  double inside_shares = 0;         // payloads of the codec inside
  double result_shares = 0;         // results, in payloads of the codec between hosts
  double concat_result_shares = 0;  // the same under the concat law
  // Where ranks of a host share its link:
  double link_shares = 0;         // sent by the host that sends most
  double concat_link_shares = 0;  // the same under the concat law
  int senders = 0;                // ranks of other hosts that one rank receives from, at most
  int roundings = 1;  // of a value on its way to the result, where payloads are decoded to be added
};

struct Strategy {
  std::string_view name;
  std::string_view doc;
  Graph (*draw)(const Place&);
  int (*chunks)(const Place&);  // chunks the partition is cut into; the same on all ranks, as the cost is
  StrategyCost (*cost)(const Place&);
  std::span<const Law> laws;  // by preference; the engine takes the first that the codec's phase supports
  // The strategy between hosts, of one that treats hosts apart. It is that one where each rank has a host of its own.
  const Strategy* between = nullptr;
  bool by_rank = false;  // values are added in the order of ranks: all such strategies give the same bits
  bool serves = false;   // it supports servers, which are ranks without values of their own
  RoundKind kind = RoundKind::kAllReduce;
  bool sums_on_the_way = false;  // a rank adds values in chunks that it does not own
};

// Strategies for all-reduces.
std::span<const Strategy* const> all_strategies();     // in the order of strategies.def
const Strategy* find_strategy(std::string_view name);  // nullptr: no such name

// Strategies for the other kinds, whose chunks are the ranges of the owners: one chunk per rank.
std::span<const Strategy* const> sharded_strategies();
// The one for this kind that resembles `strategy`: "hosts" for a strategy that treats hosts apart, "ring" for ring,
// "direct" for all others.
const Strategy& sharded_strategy(RoundKind kind, const Strategy& strategy);

}  // namespace tithe
