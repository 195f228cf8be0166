// SPDX-License-Identifier: Apache-2.0
// Ranks compare their configurations as texts on cards: equal configurations have equal texts, and card_difference()
// names the first part in which two texts differ. A card's text ends at kMaxControlText bytes, so the hash of all rules
// precedes the rules. The text of a saved state has all rules as JSON.
#include "engine/peers/session_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/peers/control.h"
#include "engine/program/laws.h"
#include "plan/allowance.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

constexpr std::string_view kAuto = "auto";  // as a strategy
constexpr std::string_view kWithChoices = " with choices ";

// Splits "fp8 with choices X" into "fp8" and "X".
std::pair<std::string_view, std::string_view> split(std::string_view text,
                                                    std::string_view mark = kWithChoices) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + mark.size())};
}

Result<Spec> spec_of(const SessionOptions& options) {
  return options.spec ? Result<Spec>(*options.spec) : first_spec(options.codec);
}

Result<const Strategy*> strategy_of(const SessionOptions& options) {
  if (options.strategy == kAuto) return static_cast<const Strategy*>(nullptr);
  if (const Strategy* found = find_strategy(options.strategy)) return found;
  std::vector<std::string_view> known{kAuto};
  for (const Strategy* s : all_strategies()) known.push_back(s->name);
  return Status(Code::kInvalid,
                fmt::format("unknown strategy '{}': {}", options.strategy, suggest(options.strategy, known)));
}

// Codec auto decides everything that these options would set.
Status check_automatic(const SessionOptions& options) {
  if (options.rules || !options.choices.empty())
    return {Code::kInvalid,
            "codec auto chooses the codec of every tensor: omit choices, and list the allowed codecs, for "
            "example auto:allow=onebit+*.bias: fp32"};
  if (!options.schedule.empty() && options.schedule != "none")
    return {Code::kInvalid, fmt::format("schedule '{}' changes the ratio of one codec, and codec auto may "
                                        "use several: omit schedule, or name a codec",
                                        options.schedule)};
  if (options.servers > 0)
    return {Code::kUnsupported, fmt::format("codec auto plans for ranks that all compute gradients, and "
                                            "servers={} only sum: name a codec, or set servers=0",
                                            options.servers)};
  return {};
}

// Ranks of one host add their values before the codec between hosts encodes the sum.
Status check_inside(const Choice& c, const Strategy& strategy, bool hosts_are_shared) {
  if (strategy.between == nullptr) {
    if (!c.inside) return {};
    return {Code::kInvalid,
            fmt::format(
                "'inside' is the codec between ranks of one host, and strategy {} has no separate exchange "
                "inside a host: use strategy hosts, hosts_ring or hosts_gather, or omit 'inside'",
                strategy.name)};
  }
  const Spec inside = c.inside_spec();
  const Codec& codec = *inside.codec;
  const std::span<const Law> laws = codec.phases[0].laws;
  if (codec.phases.size() > 1 || std::find(laws.begin(), laws.end(), Law::kDecode) == laws.end() ||
      codec.memory != nullptr || has_cols(codec))
    return {Code::kUnsupported, fmt::format("'inside' is {}, whose payloads cannot be decoded one by one: "
                                            "use fp32, bf16 or another codec of one phase without a memory",
                                            codec.name)};
  if (inside.feedback.kind == Feedback::kMomentum || inside.feedback.kind == Feedback::kDecay)
    return {Code::kInvalid, "'inside' has its own feedback: set the feedback on the codec between hosts"};
  if (hosts_are_shared && c.spec.feedback.mask)
    return {Code::kUnsupported, fmt::format("{} masks the momentum by the values that a rank sent, and "
                                            "strategy {} sends the sum of a whole host: set mask=off",
                                            to_string(c.spec), strategy.name)};
  return {};
}

// Servers have no gradients; their residuals are sent with their sums.
Status check_servers(const Choice& c) {
  if (c.strategy != nullptr && !c.strategy->serves)
    return {Code::kInvalid,
            fmt::format("strategy {} does not support servers: use strategy server or auto, or set servers=0",
                        c.strategy->name)};
  if (c.spec.codec->traits.votes)
    return {
        Code::kUnsupported,
        fmt::format(
            "{} counts every rank as a vote, and a server has no vote: use another codec, or set servers=0",
            c.spec.codec->name)};
  return {};
}

// The momentum that all tensors share, taken from the choice for small tensors; nullptr: none.
const FeedbackPolicy* momentum_of(const Choices& choices) {
  const FeedbackPolicy& policy = choices.all()[choices.rules().size()].spec.feedback;
  return policy.kind == Feedback::kMomentum ? &policy : nullptr;
}

Status check_laws(const Choices& choices, std::size_t i) {
  const Choice& c = choices.all()[i];
  const std::vector<StrategyOption> named{{.strategy = c.strategy}};
  for (const StrategyOption& option : c.strategy != nullptr ? named : c.options) {
    Status s = choose_laws(c.spec, *option.strategy).status();
    if (s.ok() && choices.defaults().servers > 0) s = check_servers(c);
    if (s.ok()) s = check_inside(c, *option.strategy, !choices.defaults().hosts.alone());
    if (s.ok()) continue;
    if (i >= choices.rules().size()) return s;
    return {s.code(), fmt::format("choices: {}: {}", label(choices.rules()[i], i + 1), s.what())};
  }
  return {};
}

}  // namespace

std::vector<Spec> programs_of(const Choices& choices) {
  std::vector<Spec> programs;
  const auto add = [&](const Spec& spec) {
    if (spec.codec->program != nullptr && std::ranges::find(programs, spec) == programs.end())
      programs.push_back(spec);
  };
  for (const Choice& c : choices.all()) {
    add(c.spec);
    if (c.inside) add(*c.inside);
  }
  return programs;
}

std::uint64_t run_in(std::uint64_t run, std::uint64_t epoch) {
  return epoch == 0 ? run : mix64(run ^ mix64(epoch));
}

bool automatic(const SessionOptions& options) { return !options.spec && is_auto(options.codec); }

// The rules come from codec auto, else from options.rules, else from options.choices.
Result<Choices> choices_of(const SessionOptions& options, int world, const Hosts& hosts) {
  const Result<Spec> spec = spec_of(options);
  if (!spec.ok()) return spec.status();
  const Result<const Strategy*> strategy = strategy_of(options);
  if (!strategy.ok()) return strategy.status();
  const Result<Link> link = parse_link(options.link);
  if (!link.ok()) return link.status();
  std::vector<Rule> rules;
  if (automatic(options)) {
    Result<AutoSpec> parsed = parse_auto(options.codec);
    if (!parsed.ok()) return parsed.status();
    TITHE_TRY(check_automatic(options));
    rules = first_rules(*parsed);
  } else if (options.rules) {
    rules = *options.rules;
  } else if (!options.choices.empty()) {
    Result<std::vector<Rule>> parsed = parse_rules(options.choices);
    if (!parsed.ok()) return parsed.status();
    rules = std::move(*parsed);
  }
  return choices_of(std::move(rules), {.spec = *spec,
                                       .strategy = *strategy,
                                       .min_values = options.min_values,
                                       .part_values = options.part_values,
                                       .world = world,
                                       .hosts = hosts,
                                       .servers = options.servers,
                                       .link = *link});
}

Result<Choices> choices_of(std::vector<Rule> rules, const ChoiceDefaults& defaults) {
  Result<Choices> choices = Choices::make(std::move(rules), defaults);
  if (!choices.ok()) return choices;
  for (std::size_t i = 0; i < choices->all().size(); ++i) TITHE_TRY(check_laws(*choices, i));
  for (const Spec& program : programs_of(*choices)) prepare(program);
  return choices;
}

Status check_change(const Choices& now, const Choices& next) {
  const FeedbackPolicy* was = momentum_of(now);
  const FeedbackPolicy* is = momentum_of(next);
  if (was == nullptr && is == nullptr) return {};
  if (was != nullptr && is != nullptr && was->mu == is->mu && was->nesterov == is->nesterov) return {};
  const auto spell = [](const FeedbackPolicy* p) {
    return p == nullptr ? std::string("none")
                        : fmt::format("mu={}{}", p->mu, p->nesterov ? ", nesterov=on" : "");
  };
  return {Code::kInvalid,
          fmt::format("choices: the session has momentum: {}, the new choices have: {}. Momentum belongs to "
                      "the whole step and cannot change during a session: give the new choices the same "
                      "feedback=momentum, mu and nesterov, or open a new session",
                      spell(was), spell(is))};
}

Status check_plain(const Choices& choices, bool automatic) {
  const auto refused = [](std::string_view what) {
    return Status(
        Code::kInvalid,
        fmt::format("the transport has lossy_card=on: cards may round payloads, which requires codec "
                    "fp32, and {}: use codec fp32 for all tensors, or omit lossy_card",
                    what));
  };
  if (automatic) return refused("codec auto may use other codecs");
  const std::size_t rules = choices.rules().size();
  for (std::size_t i = 0; i < choices.all().size(); ++i) {
    const Choice& c = choices.all()[i];
    const bool between = c.spec.codec->traits.uncompressed;
    if (between && (!c.inside || c.inside->codec->traits.uncompressed)) continue;
    const std::string text = to_string(between ? *c.inside : c.spec);
    return refused(i < rules ? fmt::format("{} sends {}", label(choices.rules()[i], i + 1), text)
                             : fmt::format("the codec is {}", text));
  }
  return {};
}

// ---- Texts that ranks compare

std::string card_text(const Choices& choices, const Schedule& schedule, std::string_view automatic,
                      Cover checksum, std::string_view ranks) {
  std::string text = automatic.empty() ? to_string(choices.defaults().spec) : std::string(automatic);
  if (checksum == Cover::kHeader) text += " with checksum=headers";
  if (schedule.active()) text += " with schedule " + schedule.text();
  text += ranks;
  if (!choices.rules().empty())
    text += fmt::format("{}{:016x}: {}", kWithChoices, choices.hash(), choices.shown());
  return printable(text, kMaxControlText);
}

std::string strategy_text(const Choices& choices) {
  const ChoiceDefaults& defaults = choices.defaults();
  const bool matter = std::any_of(choices.all().begin(), choices.all().end(), [](const Choice& c) {
    return c.strategy != nullptr ? c.strategy->between != nullptr
                                 : std::ranges::any_of(c.options, [](const StrategyOption& w) {
                                     return w.strategy->between != nullptr;
                                   });
  });
  return fmt::format("{}{}", defaults.strategy == nullptr ? kAuto : defaults.strategy->name,
                     matter                 ? fmt::format(" on hosts {}", defaults.hosts.text(defaults.world))
                     : defaults.servers > 0 ? fmt::format(" with servers={}", defaults.servers)
                                            : "");
}

// A card's text has the codec, the members, the resumed states and the rules. Names the first difference in the order
// members, states, codec, rules, because a difference of members or states also changes the text before the rules.
std::string card_difference(std::string_view is, std::string_view should) {
  auto [codec, mine] = split(is);
  auto [other_codec, theirs] = split(should);
  const auto [before, states] = split(codec, kResumed);
  const auto [other_before, other_states] = split(other_codec, kResumed);
  const auto [plain, members] = split(before, kOfMembers);
  const auto [other_plain, other_members] = split(other_before, kOfMembers);
  if (plain == other_plain && members != other_members)
    return "members: the names of ranks, their order, or the epoch differ";
  if (before == other_before && states != other_states)
    return fmt::format("it resumes from {} instead of {}",
                       states.empty() ? "no states of another world size" : states,
                       other_states.empty() ? "no states of another world size" : other_states);
  if (codec != other_codec) return fmt::format("codec {} instead of {}", codec, other_codec);
  if (mine.empty()) return "it has no choices, other ranks have some";
  if (theirs.empty()) return "it has choices, other ranks have none";
  const auto next = [](std::string_view& rest) {
    const std::size_t end = rest.find("; ");
    const std::string_view rule = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 2);
    return rule;
  };
  constexpr std::size_t kHash = 18;  // "0123456789abcdef: "
  mine.remove_prefix(std::min(kHash, mine.size()));
  theirs.remove_prefix(std::min(kHash, theirs.size()));
  for (std::size_t number = 1; !mine.empty() || !theirs.empty(); ++number) {
    const std::string_view a = next(mine), b = next(theirs);
    if (a != b)
      return fmt::format("choices: rule {} is {} instead of {}", number, a.empty() ? "not there" : a,
                         b.empty() ? "none" : b);
  }
  return "choices, in a rule beyond the part that this message shows";
}

// ---- States

std::string state_text(const Choices& choices) {
  const std::string rules = choices.text();
  return to_string(choices.defaults().spec) + (rules.empty() ? rules : std::string(kWithChoices) + rules);
}

Status check_state_text(std::string_view saved, const Choices& choices) {
  const std::string own = state_text(choices);
  if (saved == own) return {};
  const auto [codec, rules] = split(saved);
  const auto [own_codec, own_rules] = split(own);
  if (codec != own_codec)
    return {Code::kInvalid,
            fmt::format("state was saved with codec '{0}', this session has '{1}': open it with codec '{0}'",
                        codec, own_codec)};
  if (rules.empty())
    return {Code::kInvalid,
            "state was saved without choices, this session has some: open it without choices"};
  std::string where = "this session has no choices";
  const Result<std::vector<Rule>> parsed = parse_rules(rules);
  if (parsed.ok() && !own_rules.empty()) {
    std::vector<Rule> mine(choices.rules().begin(), choices.rules().end());
    for (Rule& r : mine) r.why.clear();
    const auto [a, b] = std::mismatch(parsed->begin(), parsed->end(), mine.begin(), mine.end());
    const auto number = static_cast<std::size_t>(a - parsed->begin()) + 1;
    where = fmt::format("this session has other rules, from {} on", label(b != mine.end() ? *b : *a, number));
  }
  return {Code::kInvalid,
          fmt::format("state was saved with other choices: {}; open it with choices={}", where, rules)};
}

Result<Choices> choices_in(std::string_view saved, const ChoiceDefaults& defaults) {
  const std::string_view rules = split(saved).second;
  if (rules.empty()) return Choices::make({}, defaults);
  Result<std::vector<Rule>> parsed = parse_rules(rules);
  if (!parsed.ok()) return parsed.status();
  return choices_of(std::move(*parsed), defaults);
}

// ---- Descriptions for users

std::string to_text(const Plan& plan, std::span<const PlanTensor> in_order, const Choices& choices) {
  std::string out = to_string(plan);
  std::size_t first = 0, part = 0;
  for (const PlanTensor& t : in_order) {
    if (t.n == 0) continue;
    while (plan.parts[part].first + plan.parts[part].n <= first) ++part;
    std::size_t last = part;
    while (plan.parts[last].first + plan.parts[last].n < first + t.n) ++last;
    const Choice& c = choices.choice(t.key, t.n);
    fmt::format_to(
        std::back_inserter(out), "tensor {}: {} values, {} by {}, {} ({})\n", printable(t.key, 200), t.n,
        to_string(plan.parts[part].spec), plan.parts[part].strategy->name,
        part == last ? fmt::format("part {}", part) : fmt::format("parts {} to {}", part, last), c.why);
    first += t.n;
  }
  return out;
}

// ---- Rules in use

void RulesUsed::add(const Choices& choices, std::span<const Tensor> bucket) {
  for (const Tensor& t : bucket) add(choices, t.key, t.n);
}

void RulesUsed::add(const Choices& choices, std::string_view key, std::size_t n) {
  if (used_.empty()) return;
  keys_.emplace(key);
  if (const std::size_t i = choices.rule_of(key, n); i < used_.size()) used_[i] = true;
}

Status RulesUsed::check(const Choices& choices) const {
  for (std::size_t i = 0; i < used_.size(); ++i) {
    const Rule& rule = choices.rules()[i];
    if (used_[i] || !names_one_key(rule.match)) continue;
    const std::string_view key = key_named(rule.match);
    if (keys_.contains(key)) continue;  // an earlier rule matched it, or the rule's size limits excluded it
    const std::vector<std::string_view> known(keys_.begin(), keys_.end());
    const std::string_view near = nearest_name(key, known);
    return {Code::kInvalid,
            fmt::format("choices: {} names a tensor that does not exist: {}", label(rule, i + 1),
                        near.empty()
                            ? "plan_text() lists the keys; a name must match a tensor, a pattern need not"
                            : fmt::format("did you mean '{}'?", near))};
  }
  return {};
}

std::vector<std::string> RulesUsed::unused(const Choices& choices) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!used_[i]) out.push_back(label(choices.rules()[i], i + 1) + " matches no tensor");
  return out;
}

}  // namespace tithe::engine
