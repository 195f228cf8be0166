// SPDX-License-Identifier: Apache-2.0
#include "engine/program/program.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "engine/program/laws.h"
#include "engine/program/makers.h"
#include "engine/program/template.h"
#include "engine/program/window.h"
#include "feedback/policy.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kAlign = 64;
// Payloads up to this size are checked by the step that reads them: a separate step would cost more than the check.
// Larger ones are checked while other frames are still in flight.
constexpr std::size_t kCheckedByReader = 16384;
constexpr std::size_t round_up(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// The maximum of need(settings) over a part's own settings and all ratios.
template <typename Need>
std::size_t most(const Spec& spec, std::span<const double> ratios, Need need) {
  std::size_t bytes = need(spec.settings);
  for (const double r : ratios) bytes = std::max(bytes, need(with_ratio(spec, r)));
  return bytes;
}

class Compiler {
 public:
  // The graph of a strategy on this rank, and the makers of its frames.
  struct Drawn {
    const Graph* graph = nullptr;
    bool any_merge = false;          // a graph of some rank merges frames
    const Makers* makers = nullptr;  // null: frames are not verified
  };
  Compiler(const Plan& plan, const Place& at, std::span<const double> ratios, const Tagging& tagging,
           const std::vector<bool>& copied, Templates& templates)
      : plan_(plan), at_(at), ratios_(ratios), tagging_(tagging), copied_(copied), templates_(templates) {}

  // drawn: returns the Drawn of a strategy.
  template <typename DrawnBy>
  Program run(DrawnBy drawn) {
    for (std::size_t i = 0; i < plan_.parts.size(); ++i)
      add_part(static_cast<int>(i), drawn(*plan_.parts[i].strategy));
    set_levels();
    place_parts();
    return std::move(out_);
  }

 private:
  // By exchange and chunk: the bound on the payload bytes under every ratio.
  using Payloads = std::vector<std::vector<std::size_t>>;

  // The payload bytes of a frame that may contain such a payload of every rank.
  std::size_t joined_bytes(std::size_t payload) const {
    return static_cast<std::size_t>(at_.world) * (8 + payload);
  }
  void add_part(int index, const Drawn& drawn);
  void add_template(int index, const Template& t, const Drawn& drawn, const Payloads& payloads,
                    const std::vector<bool>& joins);
  void add_slots(const Template& t, const Payloads& payloads, const std::vector<bool>& joins);
  int lower_makers(const Step& merge, const Part& part, const Template& t, const Makers& makers) const;
  Range keep(std::span<const int> numbers, std::size_t first);
  void set_levels();
  void place_parts();
  std::uint32_t weight(const Step& step) const;

  const Plan& plan_;
  const Place at_;
  const std::span<const double> ratios_;
  const Tagging tagging_;
  const std::vector<bool>& copied_;  // by part
  Templates& templates_;
  std::map<const Template*, int> shapes_;
  Program out_;
  std::vector<bool> leads_;              // by step: it leads to a send
  std::vector<std::size_t> frames_;      // by part: bytes of its slots
  std::vector<std::size_t> first_slot_;  // by part
};

// Computes the sizes of a part's chunks and payloads, and the key of its template.
void Compiler::add_part(int index, const Drawn& drawn) {
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  PartLayout layout;
  layout.laws = *choose_laws(part.spec, *part.strategy);
  layout.chunks = part.strategy->chunks(at_);
  layout.first_chunk = out_.chunks;
  layout.copied = !copied_.empty() && copied_[static_cast<std::size_t>(index)];
  out_.chunks += layout.chunks;
  const auto count = static_cast<std::size_t>(layout.chunks);
  layout.starts = part.starts;
  for (std::size_t c = 0; c <= count && part.starts.empty(); ++c)
    layout.starts.push_back(cut_at(part.n, cols_of(part.spec), c, count));

  TemplateKey key{.strategy = part.strategy,
                  .laws = layout.laws,
                  .inside = part.inside.has_value(),
                  .clips = part.spec.feedback.clip > 0,
                  .much = layout.copied || feedback::keeps_velocity(part.spec),
                  .plain = !part.inside && layout.laws.back() == Law::kSum &&
                           part.spec.codec->traits.uncompressed && !part.spec.feedback.mask,
                  .small = {}};
  Payloads payloads;
  std::vector<bool> joined;  // by exchange: a frame may contain the payloads of all ranks
  const auto add_exchange = [&](const Spec& spec, std::size_t phase, bool joins) {
    std::vector<std::size_t>& sizes = payloads.emplace_back(count);
    std::map<std::size_t, std::size_t> of_n;  // chunks have few distinct sizes
    std::size_t largest = 0;
    for (Chunk c = 0; c < layout.chunks; ++c) {
      const std::size_t n = layout.size(c);
      const auto known = of_n.try_emplace(n);
      std::size_t& payload = known.first->second;
      if (known.second) {
        payload =
            most(spec, ratios_, [&](const Settings& s) { return spec.codec->phases[phase].bound(s, n); });
        out_.scratch_bytes =
            std::max(out_.scratch_bytes,
                     most(spec, ratios_, [&](const Settings& s) { return spec.codec->scratch(s, n); }));
      }
      sizes[static_cast<std::size_t>(c)] = payload;
      largest = std::max(largest, payload);
    }
    joined.push_back(joins && drawn.any_merge);
    key.small.push_back((joined.back() ? joined_bytes(largest) : largest) <= kCheckedByReader);
  };
  if (part.inside) add_exchange(*part.inside, 0, rule_of(Law::kDecode).joins);
  for (std::size_t phase = 0; phase < layout.laws.size(); ++phase)
    add_exchange(part.spec, phase, rule_of(layout.laws[phase]).joins);

  const Template& t = templates_.of(key, at_, *drawn.graph);
  layout.contributions = t.contributions;
  layout.steps = t.steps.size();
  layout.shape = shapes_.try_emplace(&t, static_cast<int>(shapes_.size())).first->second;
  out_.parts.push_back(std::move(layout));
  add_template(index, t, drawn, payloads, joined);
}

// Adds the template's steps for this part, with sizes, and with numbers that continue those of the previous parts.
void Compiler::add_template(int index, const Template& t, const Drawn& drawn, const Payloads& payloads,
                            const std::vector<bool>& joins) {
  const Part& part = plan_.parts[static_cast<std::size_t>(index)];
  const std::size_t first_step = out_.steps.size(), first_slot = out_.slots.size();
  add_slots(t, payloads, joins);
  const auto sized = [&](Step s) {
    s.part = index;
    if (s.kind == StepKind::kEncode || s.kind == StepKind::kCheck || s.onto) {
      const std::size_t e = exchange_of(part.inside.has_value(), s.stage, s.phase);
      s.cover =
          tagging_.cover(payloads[e][static_cast<std::size_t>(s.chunk)], out_.parts.back().size(s.chunk));
      const Template::SlotUse& room = t.slot_uses[static_cast<std::size_t>(s.slot)];
      const int node = s.kind == StepKind::kCheck ? room.received : room.made;
      if (drawn.makers != nullptr && !s.onto) s.makers = keep(drawn.makers->of(node), 0);
    }
    if (s.kind == StepKind::kMerge && drawn.makers != nullptr)
      s.before = lower_makers(s, part, t, *drawn.makers);
    const auto list = [&](Range r) { return std::span(t.indices).subspan(r.first, r.count); };
    s.frames = keep(list(s.frames), first_slot);
    s.next = keep(list(s.next), first_step);
    if (s.slot >= 0) s.slot += static_cast<int>(first_slot);
    if (s.own_slot >= 0) s.own_slot += static_cast<int>(first_slot);
    s.weight = weight(s);
    return s;
  };
  for (const Step& s : t.steps) {
    out_.steps.push_back(sized(s));
    out_.waits.push_back(s.waits);
  }
  for (const int s : t.first) out_.parts.back().first.push_back(s + static_cast<int>(first_step));
  for (const int c : t.check_of)
    out_.check_of.push_back(c < 0 ? c : c + static_cast<int>(out_.checks.size()));
  for (const Step& s : t.checks) out_.checks.push_back(sized(s));
  leads_.insert(leads_.end(), t.leads.begin(), t.leads.end());
  out_.max_views = std::max(out_.max_views, t.max_views);
}

// Assigns memory to the part's frames. A received frame may share the memory of an outgoing frame
// (Template::SlotUse).
void Compiler::add_slots(const Template& t, const Payloads& payloads, const std::vector<bool>& joins) {
  first_slot_.push_back(out_.slots.size());
  std::size_t at = 0;
  for (const Template::SlotUse& room : t.slot_uses) {
    const std::size_t payload = payloads[room.exchange][static_cast<std::size_t>(room.chunk)];
    const std::size_t bytes = kFrameHeaderBytes +
                              (room.joined && joins[room.exchange] ? joined_bytes(payload) : payload) +
                              tagging_.trailer();
    if (room.instead >= 0) {
      out_.slots.push_back(out_.slots[first_slot_.back() + static_cast<std::size_t>(room.instead)]);
      TITHE_ASSERT(out_.slots.back().bytes == bytes);
      continue;
    }
    out_.slots.push_back({at, bytes});
    at += round_up(bytes);
  }
  frames_.push_back(at);
}

// The number of a merge's frames that come from lower ranks (or hosts); they come first.
int Compiler::lower_makers(const Step& merge, const Part& part, const Template& t,
                           const Makers& makers) const {
  int lower = 0;
  for (std::uint32_t k = 0; k < merge.frames.count; ++k) {
    const int slot = t.indices[merge.frames.first + k];
    const Rank maker = makers.of(t.slot_uses[static_cast<std::size_t>(slot)].received)[0];
    if (part.inside ? at_.host_of(maker) > at_.host_of(at_.me) : maker > at_.me) break;
    ++lower;
  }
  return lower;
}

Range Compiler::keep(std::span<const int> numbers, std::size_t first) {
  const Range r{static_cast<std::uint32_t>(out_.indices.size()), static_cast<std::uint32_t>(numbers.size())};
  for (const int n : numbers) out_.indices.push_back(n + static_cast<int>(first));
  return r;
}

std::uint32_t Compiler::weight(const Step& step) const {
  const auto part = static_cast<std::size_t>(step.part);
  const std::size_t values =
      step.chunk == kWholePart ? plan_.parts[part].n : out_.parts[part].size(step.chunk);
  const std::size_t all = values * std::max<std::size_t>(1, step.frames.count);
  return static_cast<std::uint32_t>(std::min<std::size_t>(all, std::numeric_limits<std::uint32_t>::max()));
}

// Sorts steps into levels of equal urgency. A compute level is twice the part's priority, plus 1 if the step leads to
// a send.
void Compiler::set_levels() {
  std::map<std::int64_t, std::vector<int>, std::greater<>> compute, mail;
  for (std::size_t s = 0; s < out_.steps.size(); ++s) {
    const Step& step = out_.steps[s];
    const std::int64_t priority = plan_.parts[static_cast<std::size_t>(step.part)].priority;
    if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv)
      mail[priority].push_back(static_cast<int>(s));
    else
      compute[2 * priority + (leads_[s] ? 1 : 0)].push_back(static_cast<int>(s));
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

// Assigns memory to parts. The window is computed from sizes that are the same on all ranks, so all ranks begin parts
// in the same way.
void Compiler::place_parts() {
  std::vector<std::size_t> sizes, staged;
  std::map<const Strategy*, StrategyCost> costs;
  for (std::size_t i = 0; i < plan_.parts.size(); ++i) {
    const Part& part = plan_.parts[i];
    const auto [at, fresh] = costs.try_emplace(part.strategy);
    if (fresh) at->second = part.strategy->cost(at_);
    staged.push_back(out_.parts[i].copied ? part.n : 0);
    sizes.push_back(bytes_under_way(part, at->second, ratios_) + sizeof(float) * staged.back());
  }
  const std::vector<int> after = begins_after(sizes, min_window(at_));
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

std::size_t bytes_under_way(const Part& part, const StrategyCost& cost, std::span<const double> ratios) {
  const std::vector<Law> laws = *choose_laws(part.spec, *part.strategy);
  double bytes = 0;
  for (std::size_t phase = 0; phase < laws.size(); ++phase) {
    const auto bound = [&](const Settings& s) { return part.spec.codec->phases[phase].bound(s, part.n); };
    bytes += static_cast<double>(most(part.spec, ratios, bound)) *
             (1 + (rule_of(laws[phase]).joins ? cost.concat_shares : cost.wire_shares));
  }
  return static_cast<std::size_t>(bytes);
}

Program compile(const Plan& plan, const Place& at, std::span<const double> ratios, const Tagging& tagging,
                KnownMakers* known, const std::vector<bool>& copied) {
  KnownMakers own;
  Templates templates;
  std::vector<std::shared_ptr<const Makers>> used;
  return Compiler(plan, at, ratios, tagging, copied, templates).run([&](const Strategy& strategy) {
    used.push_back((known != nullptr ? *known : own).of(strategy, at));
    const Makers& makers = *used.back();
    return Compiler::Drawn{&makers.graph(), makers.any_merge(), &makers};
  });
}

Program compile_unverified(const Plan& plan, const Place& at, const Graph& graph, bool any_merge,
                           Templates& templates, bool copied) {
  const std::vector<bool> by_part(plan.parts.size(), copied);
  return Compiler(plan, at, {}, {}, by_part, templates).run([&](const Strategy&) {
    return Compiler::Drawn{&graph, any_merge, nullptr};
  });
}

}  // namespace tithe::engine
