// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Graph contains the operations of one rank to synchronise one partition. A strategy draws it, the engine executes
// it on a transport, a simulator on a virtual clock, and a planner counts its costs.
//
//   pure       the same Place gives the same Graph
//   matched    the k-th send from a to b on a partition, in the order of nodes, matches the k-th recv of b from a
//   once       each chunk is encoded at most once per rank and phase, inside a host or between hosts: one residual
//              buffer is enough
//   counted    steps, frames and bytes are as stated at the top of the strategy's file
//
// The operations do not depend on the law by which a codec's payloads combine:
//   encode(c)     a frame of this rank's values of chunk c: its own values and all frames that were merged into c
//   merge(c, F)   merges the frames F into chunk c, in the given order (decode+add, sum, max, join, leader)
//   store(c, F)   the result of chunk c is the combination of the frames F, in the given order
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tithe/seam/codec.h"
#include "tithe/seam/transport.h"

namespace tithe {

using Chunk = int;  // a slice of the partition

// A part has two codecs, one between hosts and one for the ranks inside a host. The stage of a frame selects its
// codec. Flat strategies use only kBetween. Frames inside a host are decoded and added by the merge; all stored
// frames are of the codec between hosts.
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

// This rank's position, and the ranks of each host. Chunks are numbered 0..world-1 unless the strategy has another
// number.
struct Place {
  Rank me = 0;
  int world = 1;
  const Hosts* hosts = nullptr;  // null: each rank has its own host
  int servers = 0;               // the last N ranks have no gradients
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

// A strategy only names the data, and the graph derives the order: a node that reads a chunk follows its last writer,
// and a node that writes the chunk also follows its last readers.
class Graph {
 public:
  struct Frame {
    int node;  // the encode or recv node that produced it
  };

  explicit Graph(int chunks) : chunks_(chunks), use_(static_cast<std::size_t>(chunks)) {}

  Frame encode(Chunk c, Stage stage = Stage::kBetween);
  // c: the frame's chunk, so that its length can be checked.
  Frame recv(Rank peer, Chunk c, Stage stage = Stage::kBetween);
  void send(Rank peer, Frame f);
  void merge(Chunk c, std::span<const Frame> frames);  // without frames: does nothing
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
  void take(Op op, Chunk c, std::span<const Frame> frames);  // a merge or a store
  void edge(int from, int to);
  void read(Chunk c, int node);
  void write(Chunk c, int node);

  int chunks_;
  std::vector<Node> nodes_;
  std::vector<Chunk> recv_chunk_;  // by node; -1 elsewhere
  std::vector<Use> use_;
};

// A strategy's costs, which its file states and the conformance suite asserts: exact counts for one partition and one
// phase. Shares are payload bytes in units of one rank's payload of the whole partition.
struct StrategyCost {
  int steps;           // longest chain of messages
  int frames_sent;     // by the rank that sends most
  int encodes;         // by the rank that encodes most
  double wire_shares;  // sent by the busiest rank, if a combination is as large as one payload
  // The same under the concat law, where a frame with the values of k ranks contains k payloads.
  double concat_shares;
  // If the strategy has two levels, wire_shares and concat_shares count the shares that leave a rank's host. Inside
  // the host, the busiest rank sends:
  double inside_shares = 0;         // payloads of the codec inside
  double result_shares = 0;         // results, in payloads of the codec between hosts
  double concat_result_shares = 0;  // the same under the concat law
  // If ranks of a host share its link:
  double link_shares = 0;         // sent by the busiest host
  double concat_link_shares = 0;  // the same under the concat law
  int senders = 0;                // the most ranks of other hosts from which one rank receives
  int roundings = 1;              // of a value until it is in the result, if payloads are decoded to be added
};

struct Strategy {
  std::string_view name;
  std::string_view doc;
  Graph (*draw)(const Place&);
  int (*chunks)(const Place&);  // the number of chunks; like the cost, the same on all ranks
  StrategyCost (*cost)(const Place&);
  std::span<const Law> laws;  // by preference; the engine uses the first that the codec's phase supports
  // The strategy between hosts, if this strategy has two levels. It replaces this strategy if each rank has its own
  // host.
  const Strategy* between = nullptr;
  bool by_rank = false;  // values are added in the order of ranks: all such strategies give the same bits
  bool serves = false;   // it supports servers, which are ranks without gradients
  RoundKind kind = RoundKind::kAllReduce;
  bool sums_on_the_way = false;  // a rank adds values in chunks that it does not own
};

// Strategies for all-reduces.
std::span<const Strategy* const> all_strategies();     // in the order of strategies.def
const Strategy* find_strategy(std::string_view name);  // nullptr: no such name

// Strategies for the other kinds, whose chunks are the ranges of the owners: one chunk per rank.
std::span<const Strategy* const> sharded_strategies();
// The strategy of this kind that resembles `strategy`: "hosts" for a strategy with two levels, "ring" for ring,
// "direct" for all others.
const Strategy& sharded_strategy(RoundKind kind, const Strategy& strategy);

}  // namespace tithe
