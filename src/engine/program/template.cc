// SPDX-License-Identifier: Apache-2.0
// Drawer visits the graph's nodes in their order, once for each exchange, and adds steps with lists of predecessors.
// `ready` has, for each chunk, the step that ends the chunk's previous exchange. Invariant: a step is added after its
// predecessors, so the order of steps is a valid execution order, and link() needs no sort of the graph to invert the
// lists.
#include "engine/program/template.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/program/laws.h"

namespace tithe::engine {
namespace {

// The most sends that a receive may wait for. With more ranks, received frames have their own memory, so that the
// size of a template stays linear in the size of its graph.
constexpr std::size_t kMaxLeft = 16;

class Drawer {
 public:
  Drawer(const TemplateKey& key, const Place& at, const Graph& graph)
      : key_(key), at_(at), graph_(graph), count_(static_cast<std::size_t>(graph.chunks())) {}

  Template run() {
    set_contributions();
    read_graph();
    loaded_.assign(count_, key_.clips);
    // By chunk: the step after which the next phase may use it.
    std::vector<int> ready(count_, key_.clips ? add(StepKind::kLoad, {Stage::kBetween, 0}, kWholePart) : -1);
    if (key_.inside) add_exchange({Stage::kInside, 0}, ready);
    for (std::size_t phase = 0; phase < key_.laws.size(); ++phase)
      add_exchange({Stage::kBetween, phase}, ready);
    link();
    return std::move(out_);
  }

 private:
  struct Draft {
    std::vector<int> after, frames;
  };
  // An exchange: a phase of the codec of a stage.
  struct Exchange {
    Stage stage;
    std::size_t phase;
  };

  static Step step_of(StepKind kind, Exchange exchange, Chunk c) {
    Step s;
    s.kind = kind;
    s.stage = exchange.stage;
    s.phase = static_cast<std::uint8_t>(exchange.phase);
    s.chunk = c;
    return s;
  }
  int add(StepKind kind, Exchange exchange, Chunk c) {
    out_.steps.push_back(step_of(kind, exchange, c));
    drafts_.emplace_back();
    return static_cast<int>(drafts_.size()) - 1;
  }
  Step& at(int step) { return out_.steps[static_cast<std::size_t>(step)]; }
  Draft& draft(int step) { return drafts_[static_cast<std::size_t>(step)]; }
  void follow(int step, int before) {
    if (before >= 0) draft(step).after.push_back(before);
  }
  int add_slot(Exchange exchange, Chunk c, bool joined) {
    out_.slot_uses.push_back({exchange_of(key_.inside, exchange.stage, exchange.phase), c, joined});
    out_.check_of.push_back(-1);
    return static_cast<int>(out_.slot_uses.size()) - 1;
  }
  int add_user(StepKind kind, Exchange exchange, Chunk c);
  void set_contributions();
  void read_graph();
  void add_exchange(Exchange exchange, std::vector<int>& ready);
  void link();

  const TemplateKey& key_;
  const Place at_;
  const Graph& graph_;
  const std::size_t count_;  // chunks
  Template out_;
  std::vector<Draft> drafts_;                // by step
  std::vector<int> readers_;                 // by node: number of readers of its frame
  std::vector<bool> sent_;                   // by node: its frame is sent
  std::vector<bool> at_once_;                // by node: the reader of its frame reads it sequentially
  std::vector<bool> loaded_;                 // by chunk
  std::unordered_map<Rank, int> last_send_;  // sends to one peer are sequential
  // By peer: steps that must end before its next message may arrive, because the message reuses the memory that they
  // read. Receives from one peer are posted in order, so each waits for all predecessors of the earlier ones.
  std::unordered_map<Rank, std::vector<int>> left_before_;
};

// Adds a step that reads or writes its chunk. The first such step loads the chunk's values. If the step waits for a
// message and loading is expensive, a separate step loads them meanwhile.
int Drawer::add_user(StepKind kind, Exchange exchange, Chunk c) {
  const bool first = !loaded_[static_cast<std::size_t>(c)];
  loaded_[static_cast<std::size_t>(c)] = true;
  const bool waits = kind == StepKind::kMerge || kind == StepKind::kStore;
  const int load = first && waits && key_.much ? add(StepKind::kLoad, exchange, c) : -1;
  const int step = add(kind, exchange, c);
  at(step).loads = first && load < 0;
  follow(step, load);
  return step;
}

// Sets the contributions. With separate exchanges inside hosts, one rank of each host encodes a chunk for other
// hosts; otherwise all ranks encode. In a reduce-scatter the owner has contribution 0: it computes the sum and keeps
// its rounding error.
void Drawer::set_contributions() {
  out_.contributions.assign(count_, {-1, at_.workers(), at_.workers() + (at_.servers > 0 ? 1 : 0)});
  for (const Node& n : graph_.nodes())
    if (n.op == Op::kEncode && n.stage == Stage::kBetween && at_.works())
      out_.contributions[static_cast<std::size_t>(n.arg)].at = at_.me;
  if (key_.inside)
    for (Contribution& t : out_.contributions)
      t = {t.at < 0 ? -1 : at_.host_of(at_.me), at_.hosts->count(at_.world), at_.hosts->count(at_.world)};
  if (key_.strategy->kind == RoundKind::kReduceScatter)
    out_.contributions[static_cast<std::size_t>(at_.me)].at = 0;
}

// Finds, for each node, the number of readers of its frame, whether it is sent, and whether its reader reads
// sequentially.
void Drawer::read_graph() {
  readers_.resize(graph_.nodes().size());
  sent_.resize(graph_.nodes().size());
  at_once_.resize(graph_.nodes().size());
  for (const Node& n : graph_.nodes()) {
    if (n.op == Op::kMerge ? !n.frames.empty() : n.op == Op::kStore && n.frames.size() == 1)
      at_once_[static_cast<std::size_t>(n.frames[0])] = true;
    for (const int f : n.frames) {
      ++readers_[static_cast<std::size_t>(f)];
      if (n.op == Op::kSend) sent_[static_cast<std::size_t>(f)] = true;
    }
  }
}

// Adds the steps of one exchange. `ready`, by chunk: the last step that must precede uses of the chunk; updated for
// the next exchange. Nodes are visited in the graph's order, which is a valid execution order.
void Drawer::add_exchange(Exchange exchange, std::vector<int>& ready) {
  const bool inside = exchange.stage == Stage::kInside;
  const LawRule& law = rule_of(inside ? Law::kDecode : key_.laws[exchange.phase]);
  const bool plain = key_.plain && !inside;
  const bool small = key_.small[exchange_of(key_.inside, exchange.stage, exchange.phase)];
  // If all ranks share a host, its caches should hold the frames in flight. So a received frame reuses the memory of
  // this rank's own frame of the chunk.
  const bool reuses = !law.joins && at_.hosts != nullptr && at_.hosts->count(at_.world) == 1;
  const auto nodes = graph_.nodes();
  const auto takes_part = [&](const Node& n) { return n.stage == exchange.stage; };

  std::vector<std::vector<int>> merged(count_);
  for (const Node& n : nodes)
    if (n.op == Op::kMerge && takes_part(n))
      for (const int f : n.frames) merged[static_cast<std::size_t>(n.arg)].push_back(f);

  std::vector<int> step_of_node(nodes.size(), -1);  // the step that successors wait for
  std::vector<int> slot_of(nodes.size(), -1);
  std::vector<int> own(count_, -1), own_slot(count_, -1), encode_slot(count_, -1);
  std::vector<int> stored = ready;
  std::vector<int> encoded(count_, -1);                 // by chunk: the node that encoded its frame
  std::vector<std::vector<int>> reading(nodes.size());  // by node: steps that read its frame
  const auto slots = [&](const std::vector<int>& frames) {
    std::vector<int> s;
    for (const int f : frames) s.push_back(slot_of[static_cast<std::size_t>(f)]);
    return s;
  };
  // Adds the step that makes the own payload, into which payloads of other ranks are merged.
  const auto need_own = [&](Chunk c) {
    const auto i = static_cast<std::size_t>(c);
    if (own[i] >= 0 || !law.own_first) return;
    encode_slot[i] = add_slot(exchange, c, law.joins);
    own_slot[i] = law.joins ? add_slot(exchange, c, false) : encode_slot[i];
    own[i] = add_user(StepKind::kOwn, exchange, c);
    at(own[i]).slot = encode_slot[i];
    at(own[i]).own_slot = own_slot[i];
    follow(own[i], ready[i]);
  };

  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const Node& node = nodes[k];
    if (!takes_part(node)) continue;
    const Chunk c = graph_.chunk_of(node.op == Op::kSend ? node.frames[0] : static_cast<int>(k));
    const auto i = static_cast<std::size_t>(c);
    int step = -1;
    switch (node.op) {
      case Op::kEncode:
        if (!merged[i].empty()) need_own(c);
        if (encode_slot[i] < 0) encode_slot[i] = add_slot(exchange, c, false);
        step = add_user(StepKind::kEncode, exchange, c);
        at(step).direct = own[i] < 0;
        at(step).slot = slot_of[k] = encode_slot[i];
        at(step).own_slot = own_slot[i];
        out_.slot_uses[static_cast<std::size_t>(encode_slot[i])].made = static_cast<int>(k);
        if (reuses) encoded[i] = static_cast<int>(k);
        if (law.joins) draft(step).frames = slots(merged[i]);
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        if (inside) stored[i] = step;  // the next use of the chunk is in the stage between hosts
        break;
      case Op::kMerge: {
        const bool onto = plain && own[i] < 0 && encode_slot[i] < 0 && !node.frames.empty() &&
                          !sent_[static_cast<std::size_t>(node.frames[0])];
        if (!onto) need_own(c);
        step = add_user(StepKind::kMerge, exchange, c);
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        if (onto) {
          own[i] = step;
          encode_slot[i] = own_slot[i] = slot_of[static_cast<std::size_t>(node.frames[0])];
        }
        at(step).onto = onto;
        at(step).slot = encode_slot[i];
        draft(step).frames = slots(node.frames);
        for ([[maybe_unused]] const int f : node.frames)
          TITHE_ASSERT(!law.adds || readers_[static_cast<std::size_t>(f)] == 1);
        if (inside) stored[i] = step;
        break;
      }
      case Op::kStore:
        step = add_user(StepKind::kStore, exchange, c);
        draft(step).frames = slots(node.frames);
        if (node.frames.size() > 1 && law.adds && !plain)
          at(step).slot = add_slot(exchange, c, false);  // to combine them
        follow(step, ready[i]);
        stored[i] = step;
        break;
      case Op::kSend: {
        step = add(StepKind::kSend, exchange, c);
        at(step).peer = node.arg;
        at(step).slot = slot_of[static_cast<std::size_t>(node.frames[0])];
        int& last = last_send_.try_emplace(node.arg, -1).first->second;
        follow(step, last);
        last = step;
        break;
      }
      case Op::kRecv: {
        const int recv = add(StepKind::kRecv, exchange, c);
        slot_of[k] = add_slot(exchange, c, law.joins);
        out_.slot_uses.back().received = static_cast<int>(k);
        std::vector<int>& left = left_before_[node.arg];
        if (const int own_frame = std::exchange(encoded[i], -1); own_frame >= 0 && left.size() < kMaxLeft) {
          const auto made = static_cast<std::size_t>(own_frame);
          if (readers_[made] > 0 && static_cast<int>(reading[made].size()) == readers_[made]) {
            out_.slot_uses.back().instead = slot_of[made];
            left.insert(left.end(), reading[made].begin(), reading[made].end());
          }
        }
        for (const int reader : left) follow(recv, reader);
        at(recv).slot = slot_of[k];
        at(recv).peer = node.arg;
        for (const int a : node.after) follow(recv, step_of_node[static_cast<std::size_t>(a)]);
        Step check = step_of(StepKind::kCheck, exchange, c);
        check.slot = slot_of[k];
        check.peer = node.arg;
        // A frame that is forwarded to other ranks is checked before it is sent, so that this rank is not blamed for
        // it.
        if ((small || (plain && at_once_[k])) && !sent_[k] && readers_[k] == 1) {
          out_.check_of[static_cast<std::size_t>(slot_of[k])] = static_cast<int>(out_.checks.size());
          out_.checks.push_back(check);
          step = recv;
        } else {
          step = add(StepKind::kCheck, exchange, c);
          at(step) = check;
          follow(step, recv);
        }
        break;
      }
    }
    if (node.op != Op::kRecv)
      for (const int a : node.after) follow(step, step_of_node[static_cast<std::size_t>(a)]);
    step_of_node[k] = step;
    if (reuses)
      for (const int f : node.frames) reading[static_cast<std::size_t>(f)].push_back(step);
    out_.max_views = std::max(out_.max_views, std::max(node.frames.size(), merged[i].size() + 1) *
                                                  static_cast<std::size_t>(at_.world));
  }
  ready = std::move(stored);
}

// Computes successor lists from predecessor lists. The steps are in a valid execution order, so successors have
// higher numbers.
void Drawer::link() {
  for (std::size_t s = 0; s < drafts_.size(); ++s) {
    std::vector<int>& after = drafts_[s].after;
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    out_.steps[s].waits = static_cast<int>(after.size());
    if (after.empty()) out_.first.push_back(static_cast<int>(s));
    for (const int a : after) ++out_.steps[static_cast<std::size_t>(a)].next.count;
    out_.steps[s].frames = {static_cast<std::uint32_t>(out_.indices.size()),
                            static_cast<std::uint32_t>(drafts_[s].frames.size())};
    out_.indices.insert(out_.indices.end(), drafts_[s].frames.begin(), drafts_[s].frames.end());
  }
  auto at_index = static_cast<std::uint32_t>(out_.indices.size());
  for (Step& s : out_.steps) {
    s.next.first = at_index;
    at_index += s.next.count;
  }
  out_.indices.resize(at_index);
  std::vector<std::uint32_t> filled(out_.steps.size());
  for (std::size_t s = 0; s < drafts_.size(); ++s)
    for (const int a : drafts_[s].after) {
      const auto before = static_cast<std::size_t>(a);
      out_.indices[out_.steps[before].next.first + filled[before]++] = static_cast<int>(s);
    }
  out_.leads.resize(out_.steps.size());
  for (std::size_t s = out_.steps.size(); s-- > 0;)
    for (std::uint32_t k = 0; k < out_.steps[s].next.count; ++k) {
      const auto next = static_cast<std::size_t>(out_.indices[out_.steps[s].next.first + k]);
      if (out_.leads[next] || out_.steps[next].kind == StepKind::kSend) out_.leads[s] = true;
    }
}

}  // namespace

Template make_template(const TemplateKey& key, const Place& at, const Graph& graph) {
  return Drawer(key, at, graph).run();
}

}  // namespace tithe::engine
