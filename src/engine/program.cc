// SPDX-License-Identifier: Apache-2.0
#include "engine/program.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/laws.h"
#include "engine/makers.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kAlign = 64;
// Payloads up to this size are checked by the step that reads them: a step of its own costs more than that takes.
// Larger ones are checked while others are still on their way.
constexpr std::size_t kCheckedByReader = 16384;
constexpr std::size_t round_up(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

class Compiler {
 public:
  Compiler(const Plan& plan, Rank me, int world, std::span<const double> ratios, const Tagging& tagging)
      : plan_(plan), me_(me), world_(world), ratios_(ratios), tagging_(tagging) {}

  Program run() {
    for (std::size_t i = 0; i < plan_.parts.size(); ++i) add_part(static_cast<int>(i));
    link();
    return std::move(out_);
  }

 private:
  struct Draft {
    Step step;
    std::vector<int> after;
    std::vector<int> frames;
    std::vector<Rank> makers;
  };

  static Draft draft(StepKind kind, int part, std::size_t phase, Chunk c) {
    Draft d;
    d.step.kind = kind;
    d.step.part = part;
    d.step.phase = static_cast<std::uint8_t>(phase);
    d.step.chunk = c;
    return d;
  }
  int add(Draft d) {
    drafts_.push_back(std::move(d));
    return static_cast<int>(drafts_.size()) - 1;
  }
  int add(StepKind kind, int part, std::size_t phase, Chunk c) { return add(draft(kind, part, phase, c)); }
  Draft& at(int step) { return drafts_[static_cast<std::size_t>(step)]; }
  void follow(int step, int before) {
    if (before >= 0) at(step).after.push_back(before);
  }
  int add_slot(std::size_t payload_bytes) {
    const std::size_t bytes = kFrameHeaderBytes + payload_bytes + tagging_.trailer();
    out_.slots.push_back({out_.arena_bytes, bytes});
    out_.check_of.push_back(-1);
    out_.arena_bytes += round_up(bytes);
    return static_cast<int>(out_.slots.size()) - 1;
  }

  // The most that a part's settings ask for, under any ratio.
  template <typename Need>
  std::size_t most(const Spec& spec, Need need) const {
    std::size_t bytes = need(spec.settings);
    for (const double r : ratios_) bytes = std::max(bytes, need(with_ratio(spec, r)));
    return bytes;
  }
  void add_part(int index);
  void add_phase(int index, std::size_t phase, Makers& makers, std::vector<int>& ready);
  void link();
  std::uint32_t weight(const Step& step) const;

  const Plan& plan_;
  const Rank me_;
  const int world_;
  const std::span<const double> ratios_;
  const Tagging tagging_;
  Program out_;
  std::vector<Draft> drafts_;
  std::vector<Draft> checks_;
  std::map<const Strategy*, Makers> makers_;
  std::map<Rank, int> last_send_;  // of the part at hand: sends to one peer leave in order
};

void Compiler::add_part(int index) {
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  PartLayout layout;
  layout.laws = *choose_laws(part.spec, *part.strategy);
  layout.chunks = part.strategy->chunks(world_);
  layout.first_chunk = out_.chunks;
  out_.chunks += layout.chunks;
  const auto count = static_cast<std::size_t>(layout.chunks);
  for (std::size_t c = 0; c <= count; ++c)
    layout.starts.push_back(cut_at(part.n, cols_of(part.spec), c, count));
  out_.parts.push_back(layout);

  last_send_.clear();
  Makers& makers = makers_.try_emplace(part.strategy, *part.strategy, me_, world_).first->second;
  const int load = add(StepKind::kLoad, index, 0, 0);
  std::vector<int> ready(count, load);  // by chunk: the step after which a phase may touch it
  for (std::size_t phase = 0; phase < layout.laws.size(); ++phase) add_phase(index, phase, makers, ready);
  const int unload = add(StepKind::kUnload, index, 0, 0);
  for (const int store : ready) follow(unload, store);
}

void Compiler::add_phase(int index, std::size_t phase, Makers& makers, std::vector<int>& ready) {
  const Graph& graph = makers.graph();
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  const PartLayout& layout = out_.parts[static_cast<std::size_t>(index)];
  const LawRow& law = row_of(layout.laws[phase]);
  const auto count = static_cast<std::size_t>(layout.chunks);
  const auto payload = [&](Chunk c) {
    return most(part.spec,
                [&](const Settings& s) { return part.spec.codec->phases[phase].bound(s, layout.size(c)); });
  };
  for (Chunk c = 0; c < layout.chunks; ++c)
    out_.scratch_bytes = std::max(out_.scratch_bytes, most(part.spec, [&](const Settings& s) {
                                    return part.spec.codec->scratch(s, layout.size(c));
                                  }));
  const auto ranks = static_cast<std::size_t>(world_);
  const bool joins = law.joins && makers.any_merge();
  const auto frame_bytes = [&](Chunk c) { return joins ? ranks * (8 + payload(c)) : payload(c); };

  std::vector<std::vector<int>> merged(count);
  for (const Node& n : graph.nodes())
    if (n.op == Op::kMerge)
      for (const int f : n.frames) merged[static_cast<std::size_t>(n.arg)].push_back(f);

  std::vector<int> used;  // frames, once for each node that reads them
  std::vector<bool> sent(graph.nodes().size());
  for (const Node& n : graph.nodes()) {
    used.insert(used.end(), n.frames.begin(), n.frames.end());
    for (const int f : n.frames)
      if (n.op == Op::kSend) sent[static_cast<std::size_t>(f)] = true;
  }
  std::vector<int> step_of(graph.nodes().size(), -1);  // what others wait for
  std::vector<int> slot_of(graph.nodes().size(), -1);
  std::vector<int> own(count, -1), own_slot(count, -1), encode_slot(count, -1);
  std::vector<int> stored = ready;
  const auto slots = [&](const std::vector<int>& nodes) {
    std::vector<int> s;
    for (const int f : nodes) s.push_back(slot_of[static_cast<std::size_t>(f)]);
    return s;
  };
  // The own payload first: others' payloads come to it.
  const auto need_own = [&](Chunk c) {
    const auto i = static_cast<std::size_t>(c);
    if (own[i] >= 0 || !law.own_first) return;
    encode_slot[i] = add_slot(frame_bytes(c));
    own_slot[i] = law.joins ? add_slot(payload(c)) : encode_slot[i];
    own[i] = add(StepKind::kOwn, index, phase, c);
    at(own[i]).step.slot = encode_slot[i];
    at(own[i]).step.own_slot = own_slot[i];
    follow(own[i], ready[i]);
  };

  for (std::size_t k = 0; k < graph.nodes().size(); ++k) {
    const Node& node = graph.nodes()[k];
    const Chunk c = node.op == Op::kSend ? 0 : graph.chunk_of(static_cast<int>(k));
    const auto i = static_cast<std::size_t>(c);
    int step = -1;
    switch (node.op) {
      case Op::kEncode:
        if (!merged[i].empty()) need_own(c);
        if (encode_slot[i] < 0) encode_slot[i] = add_slot(payload(c));
        step = add(StepKind::kEncode, index, phase, c);
        at(step).step.direct = own[i] < 0;
        at(step).step.cover = tagging_.cover(payload(c), layout.size(c));
        at(step).step.slot = slot_of[k] = encode_slot[i];
        at(step).step.own_slot = own_slot[i];
        if (law.joins) at(step).frames = slots(merged[i]);
        at(step).makers = makers.of(static_cast<int>(k));
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        break;
      case Op::kMerge:
        need_own(c);
        step = add(StepKind::kMerge, index, phase, c);
        at(step).step.slot = encode_slot[i];
        at(step).frames = slots(node.frames);
        for (const int f : node.frames) {
          TITHE_ASSERT(!law.adds || std::count(used.begin(), used.end(), f) == 1);
          if (makers.of(f)[0] > me_) break;
          ++at(step).step.before;
        }
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        break;
      case Op::kStore:
        step = add(StepKind::kStore, index, phase, c);
        at(step).frames = slots(node.frames);
        if (node.frames.size() > 1 && law.adds)
          at(step).step.slot = add_slot(payload(c));  // where they are combined
        follow(step, ready[i]);
        stored[i] = step;
        break;
      case Op::kSend: {
        const int frame = node.frames[0];
        step = add(StepKind::kSend, index, phase, 0);
        at(step).step.peer = node.arg;
        at(step).step.slot = slot_of[static_cast<std::size_t>(frame)];
        int& last = last_send_.try_emplace(node.arg, -1).first->second;
        follow(step, last);
        last = step;
        break;
      }
      case Op::kRecv: {
        const int recv = add(StepKind::kRecv, index, phase, c);
        slot_of[k] = add_slot(frame_bytes(c));
        at(recv).step.slot = slot_of[k];
        at(recv).step.peer = node.arg;
        for (const int a : node.after) follow(recv, step_of[static_cast<std::size_t>(a)]);
        Draft check = draft(StepKind::kCheck, index, phase, c);
        check.step.cover = tagging_.cover(payload(c), layout.size(c));
        check.step.slot = slot_of[k];
        check.step.peer = node.arg;
        check.makers = makers.of(static_cast<int>(k));
        // What others are to read is checked before it leaves, so that nobody is blamed for what he passed on.
        const bool by_reader = frame_bytes(c) <= kCheckedByReader && !sent[k] &&
                               std::count(used.begin(), used.end(), static_cast<int>(k)) == 1;
        if (by_reader) {
          out_.check_of[static_cast<std::size_t>(slot_of[k])] = static_cast<int>(checks_.size());
          checks_.push_back(std::move(check));
          step = recv;
        } else {
          step = add(std::move(check));
          follow(step, recv);
        }
        break;
      }
    }
    if (node.op != Op::kRecv)
      for (const int a : node.after) follow(step, step_of[static_cast<std::size_t>(a)]);
    step_of[k] = step;
    out_.most_views = std::max(out_.most_views, std::max(node.frames.size(), merged[i].size() + 1) * ranks);
  }
  ready = std::move(stored);
}

std::uint32_t Compiler::weight(const Step& step) const {
  const auto part = static_cast<std::size_t>(step.part);
  const bool whole = step.kind == StepKind::kLoad || step.kind == StepKind::kUnload;
  const std::size_t values = whole ? plan_.parts[part].n : out_.parts[part].size(step.chunk);
  const std::size_t all = values * std::max<std::size_t>(1, step.frames.count);
  return static_cast<std::uint32_t>(std::min<std::size_t>(all, std::numeric_limits<std::uint32_t>::max()));
}

// Successor lists from predecessor lists.
void Compiler::link() {
  std::vector<std::vector<int>> next(drafts_.size());
  for (std::size_t s = 0; s < drafts_.size(); ++s) {
    std::vector<int>& after = drafts_[s].after;
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    drafts_[s].step.waits = static_cast<int>(after.size());
    for (const int a : after) next[static_cast<std::size_t>(a)].push_back(static_cast<int>(s));
  }
  const auto keep = [&](const std::vector<int>& list) {
    const Range r{static_cast<std::uint32_t>(out_.indices.size()), static_cast<std::uint32_t>(list.size())};
    out_.indices.insert(out_.indices.end(), list.begin(), list.end());
    return r;
  };
  for (std::size_t s = 0; s < drafts_.size(); ++s) {
    drafts_[s].step.frames = keep(drafts_[s].frames);
    drafts_[s].step.makers = keep(drafts_[s].makers);
    drafts_[s].step.next = keep(next[s]);
    drafts_[s].step.weight = weight(drafts_[s].step);
    out_.steps.push_back(drafts_[s].step);
    out_.waits.push_back(drafts_[s].step.waits);
    if (drafts_[s].step.waits == 0) out_.first.push_back(static_cast<int>(s));
  }
  for (Draft& check : checks_) {
    check.step.makers = keep(check.makers);
    out_.checks.push_back(check.step);
  }
}

}  // namespace

Program compile(const Plan& plan, Rank me, int world, std::span<const double> ratios,
                const Tagging& tagging) {
  return Compiler(plan, me, world, ratios, tagging).run();
}

}  // namespace tithe::engine
