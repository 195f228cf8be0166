// SPDX-License-Identifier: Apache-2.0
#include "engine/program.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "carry/policy.h"
#include "engine/laws.h"
#include "engine/makers.h"
#include "engine/window.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kAlign = 64;
// Payloads up to this size are checked by the step that reads them: a step of its own costs more than that takes.
// Larger ones are checked while others are still on their way.
constexpr std::size_t kCheckedByReader = 16384;
constexpr std::size_t round_up(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

class Compiler {
 public:
  Compiler(const Plan& plan, const Place& at, std::span<const double> ratios, const Tagging& tagging,
           KnownMakers& known, const std::vector<bool>& copied)
      : plan_(plan), at_(at), ratios_(ratios), tagging_(tagging), known_(known), copied_(copied) {}

  Program run() {
    for (std::size_t i = 0; i < plan_.parts.size(); ++i) add_part(static_cast<int>(i));
    link();
    set_levels();
    place_parts();
    return std::move(out_);
  }

 private:
  struct Draft {
    Step step;
    std::vector<int> after;
    std::vector<int> frames;
    std::vector<Rank> makers;
  };

  // An exchange: a phase of the codec of a stage.
  struct Exchange {
    Stage stage;
    std::size_t phase;
  };

  static Draft draft(StepKind kind, int part, Exchange exchange, Chunk c) {
    Draft d;
    d.step.kind = kind;
    d.step.part = part;
    d.step.stage = exchange.stage;
    d.step.phase = static_cast<std::uint8_t>(exchange.phase);
    d.step.chunk = c;
    return d;
  }
  int add(Draft d) {
    drafts_.push_back(std::move(d));
    return static_cast<int>(drafts_.size()) - 1;
  }
  int add(StepKind kind, int part, Exchange exchange, Chunk c) { return add(draft(kind, part, exchange, c)); }
  Draft& at(int step) { return drafts_[static_cast<std::size_t>(step)]; }
  void follow(int step, int before) {
    if (before >= 0) at(step).after.push_back(before);
  }
  int add_slot(std::size_t payload_bytes) {
    const std::size_t bytes = kFrameHeaderBytes + payload_bytes + tagging_.trailer();
    out_.slots.push_back({frames_.back(), bytes});
    out_.check_of.push_back(-1);
    frames_.back() += round_up(bytes);
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
  void add_exchange(int index, Exchange exchange, const Makers& makers, std::vector<int>& ready);
  std::vector<Turn> turns(const Part& part, const Graph& graph) const;
  void link();
  void set_levels();
  void place_parts();
  bool copied(int part) const { return !copied_.empty() && copied_[static_cast<std::size_t>(part)]; }
  int add_user(StepKind kind, int part, Exchange exchange, Chunk c);
  std::uint32_t weight(const Step& step) const;

  const Plan& plan_;
  const Place at_;
  const std::span<const double> ratios_;
  const Tagging tagging_;
  Program out_;
  std::vector<Draft> drafts_;
  std::vector<Draft> checks_;
  KnownMakers& known_;
  const std::vector<bool>& copied_;      // by part
  std::vector<std::size_t> frames_;      // by part: bytes of its slots
  std::vector<std::size_t> first_slot_;  // by part
  std::vector<bool> loaded_;             // by chunk of the part at hand
  std::map<Rank, int> last_send_;        // of the part at hand: sends to one peer leave in order
};

void Compiler::add_part(int index) {
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  PartLayout layout;
  layout.laws = *choose_laws(part.spec, *part.strategy);
  layout.chunks = part.strategy->chunks(at_);
  layout.first_chunk = out_.chunks;
  out_.chunks += layout.chunks;
  const auto count = static_cast<std::size_t>(layout.chunks);
  for (std::size_t c = 0; c <= count; ++c)
    layout.starts.push_back(cut_at(part.n, cols_of(part.spec), c, count));
  const std::shared_ptr<const Makers> makers = known_.of(*part.strategy, at_);
  layout.turns = turns(part, makers->graph());
  out_.parts.push_back(layout);

  last_send_.clear();
  frames_.push_back(0);
  first_slot_.push_back(out_.slots.size());
  const std::size_t first_step = drafts_.size();
  const bool clips = part.spec.feedback.clip > 0;
  loaded_.assign(count, clips);
  // By chunk: the step after which a phase may touch it.
  std::vector<int> ready(count,
                         clips ? add(StepKind::kLoad, index, Exchange{Stage::kBetween, 0}, kWholePart) : -1);
  if (part.inside) add_exchange(index, {Stage::kInside, 0}, *makers, ready);
  for (std::size_t phase = 0; phase < layout.laws.size(); ++phase)
    add_exchange(index, {Stage::kBetween, phase}, *makers, ready);
  out_.parts.back().steps = drafts_.size() - first_step;
}

// A step that reads or writes its chunk. If it is the first, it brings the values in. Where it waits for a message and
// that is more than a glance, they come in meanwhile.
int Compiler::add_user(StepKind kind, int part, Exchange exchange, Chunk c) {
  const bool first = !loaded_[static_cast<std::size_t>(c)];
  loaded_[static_cast<std::size_t>(c)] = true;
  const bool waits = kind == StepKind::kMerge || kind == StepKind::kStore;
  const bool much = copied(part) || carry::keeps_velocity(plan_.parts[static_cast<std::size_t>(part)].spec);
  const int load = first && waits && much ? add(StepKind::kLoad, part, exchange, c) : -1;
  const int step = add(kind, part, exchange, c);
  at(step).step.loads = first && load < 0;
  follow(step, load);
  return step;
}

// One of each host encodes a chunk for the others, where hosts are treated apart; else all ranks do.
std::vector<Turn> Compiler::turns(const Part& part, const Graph& graph) const {
  std::vector<Turn> out(static_cast<std::size_t>(graph.chunks()),
                        {-1, at_.workers(), at_.workers() + (at_.servers > 0 ? 1 : 0)});
  for (const Node& n : graph.nodes())
    if (n.op == Op::kEncode && n.stage == Stage::kBetween && at_.works())
      out[static_cast<std::size_t>(n.arg)].at = at_.me;
  if (!part.inside) return out;
  for (Turn& t : out)
    t = {t.at < 0 ? -1 : at_.host_of(at_.me), at_.hosts->count(at_.world), at_.hosts->count(at_.world)};
  return out;
}

void Compiler::add_exchange(int index, Exchange exchange, const Makers& makers, std::vector<int>& ready) {
  const Graph& graph = makers.graph();
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  const PartLayout& layout = out_.parts[static_cast<std::size_t>(index)];
  const std::size_t phase = exchange.phase;
  const bool inside = exchange.stage == Stage::kInside;
  const Spec& spec = inside ? *part.inside : part.spec;
  const LawRow& law = row_of(inside ? Law::kDecode : layout.laws[phase]);
  const auto takes_part = [&](const Node& n) { return n.stage == exchange.stage; };
  const auto count = static_cast<std::size_t>(layout.chunks);
  const auto payload = [&](Chunk c) {
    return most(spec, [&](const Settings& s) { return spec.codec->phases[phase].bound(s, layout.size(c)); });
  };
  for (Chunk c = 0; c < layout.chunks; ++c)
    out_.scratch_bytes =
        std::max(out_.scratch_bytes,
                 most(spec, [&](const Settings& s) { return spec.codec->scratch(s, layout.size(c)); }));
  const auto ranks = static_cast<std::size_t>(at_.world);
  const bool joins = law.joins && makers.any_merge();
  const auto frame_bytes = [&](Chunk c) { return joins ? ranks * (8 + payload(c)) : payload(c); };

  std::vector<std::vector<int>> merged(count);
  for (const Node& n : graph.nodes())
    if (n.op == Op::kMerge && takes_part(n))
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
    own[i] = add_user(StepKind::kOwn, index, exchange, c);
    at(own[i]).step.slot = encode_slot[i];
    at(own[i]).step.own_slot = own_slot[i];
    follow(own[i], ready[i]);
  };

  for (std::size_t k = 0; k < graph.nodes().size(); ++k) {
    const Node& node = graph.nodes()[k];
    if (!takes_part(node)) continue;
    const Chunk c = graph.chunk_of(node.op == Op::kSend ? node.frames[0] : static_cast<int>(k));
    const auto i = static_cast<std::size_t>(c);
    int step = -1;
    switch (node.op) {
      case Op::kEncode:
        if (!merged[i].empty()) need_own(c);
        if (encode_slot[i] < 0) encode_slot[i] = add_slot(payload(c));
        step = add_user(StepKind::kEncode, index, exchange, c);
        at(step).step.direct = own[i] < 0;
        at(step).step.cover = tagging_.cover(payload(c), layout.size(c));
        at(step).step.slot = slot_of[k] = encode_slot[i];
        at(step).step.own_slot = own_slot[i];
        if (law.joins) at(step).frames = slots(merged[i]);
        at(step).makers = makers.of(static_cast<int>(k));
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        if (inside) stored[i] = step;  // what comes back is of the other stage
        break;
      case Op::kMerge:
        need_own(c);
        step = add_user(StepKind::kMerge, index, exchange, c);
        at(step).step.slot = encode_slot[i];
        at(step).frames = slots(node.frames);
        for (const int f : node.frames) {
          TITHE_ASSERT(!law.adds || std::count(used.begin(), used.end(), f) == 1);
          const Rank maker = makers.of(f)[0];
          const bool later = part.inside ? at_.host_of(maker) > at_.host_of(at_.me) : maker > at_.me;
          if (later) break;
          ++at(step).step.before;
        }
        follow(step, own[i] >= 0 ? own[i] : ready[i]);
        if (inside) stored[i] = step;
        break;
      case Op::kStore:
        step = add_user(StepKind::kStore, index, exchange, c);
        at(step).frames = slots(node.frames);
        if (node.frames.size() > 1 && law.adds)
          at(step).step.slot = add_slot(payload(c));  // where they are combined
        follow(step, ready[i]);
        stored[i] = step;
        break;
      case Op::kSend: {
        const int frame = node.frames[0];
        step = add(StepKind::kSend, index, exchange, c);
        at(step).step.peer = node.arg;
        at(step).step.slot = slot_of[static_cast<std::size_t>(frame)];
        int& last = last_send_.try_emplace(node.arg, -1).first->second;
        follow(step, last);
        last = step;
        break;
      }
      case Op::kRecv: {
        const int recv = add(StepKind::kRecv, index, exchange, c);
        slot_of[k] = add_slot(frame_bytes(c));
        at(recv).step.slot = slot_of[k];
        at(recv).step.peer = node.arg;
        for (const int a : node.after) follow(recv, step_of[static_cast<std::size_t>(a)]);
        Draft check = draft(StepKind::kCheck, index, exchange, c);
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
  const std::size_t values =
      step.chunk == kWholePart ? plan_.parts[part].n : out_.parts[part].size(step.chunk);
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
    if (drafts_[s].step.waits == 0)
      out_.parts[static_cast<std::size_t>(drafts_[s].step.part)].first.push_back(static_cast<int>(s));
  }
  for (Draft& check : checks_) {
    check.step.makers = keep(check.makers);
    out_.checks.push_back(check.step);
  }
}

// Steps stand in an order in which they can run, so those that follow one have higher numbers.
void Compiler::set_levels() {
  std::vector<bool> leads(out_.steps.size());  // to a send
  for (std::size_t s = out_.steps.size(); s-- > 0;)
    for (std::uint32_t k = 0; k < out_.steps[s].next.count; ++k) {
      const auto next = static_cast<std::size_t>(out_.indices[out_.steps[s].next.first + k]);
      leads[s] = leads[s] || leads[next] || out_.steps[next].kind == StepKind::kSend;
    }
  std::map<std::int64_t, std::vector<int>, std::greater<>> compute, mail;
  for (std::size_t s = 0; s < out_.steps.size(); ++s) {
    const Step& step = out_.steps[s];
    const std::int64_t priority = plan_.parts[static_cast<std::size_t>(step.part)].priority;
    if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv)
      mail[priority].push_back(static_cast<int>(s));
    else
      compute[2 * priority + (leads[s] ? 1 : 0)].push_back(static_cast<int>(s));
  }
  const auto keep = [&](const auto& from, std::vector<Level>& into) {
    for (const auto& [urgency, steps] : from) {
      for (std::size_t k = 0; k < steps.size(); ++k) {
        Step& step = out_.steps[static_cast<std::size_t>(steps[k])];
        step.level = static_cast<std::uint32_t>(into.size());
        step.place = static_cast<std::uint32_t>(k);
      }
      into.push_back({urgency, steps});
    }
  };
  keep(compute, out_.compute_levels);
  keep(mail, out_.mail_levels);
}

// How large the window is does not depend on the rank: all of them begin parts alike.
void Compiler::place_parts() {
  std::vector<std::size_t> sizes, staged;
  for (std::size_t i = 0; i < plan_.parts.size(); ++i) {
    const Part& part = plan_.parts[i];
    const StrategyCost cost = part.strategy->cost(at_);
    double bytes = 0;
    for (std::size_t phase = 0; phase < part.spec.codec->phases.size(); ++phase) {
      const std::size_t payload =
          most(part.spec, [&](const Settings& s) { return part.spec.codec->phases[phase].bound(s, part.n); });
      const bool joins = row_of(out_.parts[i].laws[phase]).joins;
      bytes += static_cast<double>(payload) * (1 + (joins ? cost.concat_shares : cost.wire_shares));
    }
    staged.push_back(copied(static_cast<int>(i)) ? part.n : 0);
    sizes.push_back(static_cast<std::size_t>(bytes) + sizeof(float) * staged.back());
  }
  const std::vector<int> after = begins_after(sizes, kLeastWindow);
  const Placed frames = place(frames_, after), values = place(staged, after);
  out_.arena_bytes = frames.size;
  out_.staged_values = values.size;
  first_slot_.push_back(out_.slots.size());
  for (std::size_t i = 0; i < plan_.parts.size(); ++i) {
    out_.parts[i].begins_after = after[i];
    out_.parts[i].staged_at = values.at[i];
    for (std::size_t s = first_slot_[i]; s < first_slot_[i + 1]; ++s) out_.slots[s].offset += frames.at[i];
  }
}

}  // namespace

Program compile(const Plan& plan, const Place& at, std::span<const double> ratios, const Tagging& tagging,
                KnownMakers* known, const std::vector<bool>& copied) {
  KnownMakers own;
  return Compiler(plan, at, ratios, tagging, known != nullptr ? *known : own, copied).run();
}

}  // namespace tithe::engine
