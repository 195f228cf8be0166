// SPDX-License-Identifier: Apache-2.0
// make() resolves the rules, then applies the settings of the whole step (momentum, clipping) to all choices, and
// computes the strategies' options last, because they depend on the feedback.
#include "tithe/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/nearest.h"
#include "base/rng.h"
#include "base/text.h"
#include "feedback/policy.h"
#include "plan/allowance.h"
#include "plan/codec_cost.h"
#include "plan/strategy_options.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/plan.h"

namespace tithe {
namespace {

constexpr std::string_view kAny = "*";
constexpr std::string_view kAuto = "auto";
constexpr std::string_view kSmall = "small";  // the group of small tensors
constexpr std::size_t kMaxShown = 80;
constexpr std::size_t kMaxMessage = 2000;

bool any_key(std::string_view match) {
  return !match.empty() && match.find_first_not_of('*') == std::string_view::npos;
}

bool any_size(const Rule& rule) { return rule.least == 0 && rule.most >= kMaxValues; }

bool has_momentum(const Spec& spec) { return spec.feedback.kind == Feedback::kMomentum; }

std::string named(const Choice& c) {
  return fmt::format("{} by {}{}{}", to_string(c.spec), c.strategy == nullptr ? kAuto : c.strategy->name,
                     c.inside ? fmt::format(", {} inside", to_string(*c.inside)) : "",
                     c.priority == 0 ? "" : fmt::format(", priority {}", c.priority));
}

std::string takes(const Rule& rule) {
  const std::string size = size_text(rule);
  if (size.empty()) return printable(rule.match, kMaxShown);
  return rule.match == "*" ? size : printable(rule.match, kMaxShown) + " " + size;
}

Status wrong(const Rule& rule, std::size_t index, std::string_view why) {
  return {Code::kInvalid,
          printable(fmt::format("choices: {}: {}", label(rule, index + 1), why), kMaxMessage)};
}

// Checks that a rule can match. whole: patterns that match in all sizes, with the first rule of each.
Status check_reached(std::span<const Rule> rules, std::size_t index,
                     std::map<std::string_view, std::size_t>& whole) {
  const Rule& rule = rules[index];
  if (rule.match.empty()) return wrong(rule, index, "'match' is empty; use '*' to match every key");
  if (rule.least > rule.most) return wrong(rule, index, "its size conditions exclude every tensor");
  const std::string_view match = any_key(rule.match) ? kAny : rule.match;
  for (const std::string_view taken : {kAny, match})
    if (const auto before = whole.find(taken); before != whole.end())
      return wrong(rule, index,
                   fmt::format("never applies, because the first matching rule decides and {} matches all of "
                               "its tensors: put this rule before it",
                               label(rules[before->second], before->second + 1)));
  if (any_size(rule)) whole.try_emplace(match, index);
  return {};
}

Result<const Strategy*> strategy_named(const std::string& name, const ChoiceDefaults& defaults) {
  if (name.empty()) return defaults.strategy;
  if (name == kAuto) return static_cast<const Strategy*>(nullptr);
  if (const Strategy* found = find_strategy(name)) return found;
  std::vector<std::string_view> known{kAuto};
  for (const Strategy* s : all_strategies()) known.push_back(s->name);
  return Status(Code::kInvalid, fmt::format("unknown strategy '{}': {}", name, suggest(name, known)));
}

// The length in bytes of the UTF-8 character at `at`.
std::size_t character_at(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) ++end;
  return end - at;
}

}  // namespace

// ---- Patterns

bool names_one_key(std::string_view match) {
  return match.starts_with('=') || match.find_first_of("*?") == std::string_view::npos;
}

std::string_view key_named(std::string_view match) {
  return match.starts_with('=') ? match.substr(1) : match;
}

// Glob matching with backtracking to the last star only, which is sufficient and takes at most |match| * |key| steps.
bool matches(std::string_view match, std::string_view key) {
  if (names_one_key(match)) return key_named(match) == key;
  constexpr std::size_t kNone = std::string_view::npos;
  // After a star: the position in the key for the next try.
  std::size_t m = 0, k = 0, star = kNone, resume = 0;
  while (k < key.size()) {
    if (m < match.size() && match[m] == '*') {
      star = m++;
      resume = k;
    } else if (m < match.size() && match[m] == '?') {
      ++m;
      k += character_at(key, k);
    } else if (m < match.size() && match[m] == key[k]) {
      ++m;
      ++k;
    } else if (star != kNone) {
      m = star + 1;
      k = ++resume;
    } else {
      return false;
    }
  }
  while (m < match.size() && match[m] == '*') ++m;
  return m == match.size();
}

// ---- From rules to choices

const StrategyOption* Choice::option_for(std::size_t values) const {
  return strategy != nullptr ? nullptr : &plan::best_option(options, values);
}

const Strategy& Choice::strategy_of(std::size_t values) const {
  return strategy != nullptr ? *strategy : *option_for(values)->strategy;
}

Spec Choice::inside_spec() const { return inside.value_or(uncompressed_spec()); }

Spec Choice::inside_spec(const StrategyOption* option) const {
  return option != nullptr && option->inside ? *option->inside : inside_spec();
}

namespace {

// Caches options: choices often have the same codec, and computing a strategy's cost visits every rank.
class KnownOptions {
 public:
  explicit KnownOptions(const ChoiceDefaults& defaults) : defaults_(defaults) {}
  const std::vector<StrategyOption>& of(const Spec& spec, const std::optional<Spec>& inside) {
    for (const Known& k : known_)
      if (k.inside == inside && k.spec == spec) return k.options;
    known_.push_back({spec, inside, plan::strategy_options_of(spec, inside, defaults_)});
    return known_.back().options;
  }
  std::vector<StrategyOption> of_group(const Spec& spec, const std::optional<Spec>& inside) {
    return plan::strategy_options_of_group(of(spec, inside), inside.has_value());
  }

 private:
  struct Known {
    Spec spec;
    std::optional<Spec> inside;
    std::vector<StrategyOption> options;
  };
  const ChoiceDefaults& defaults_;
  std::deque<Known> known_;
};

}  // namespace

// Resolves all rules, then adds two choices: one for small tensors and one for all other tensors without a rule. If
// the link is known and min_values has its default, min_values is computed from the link.
Result<Choices> Choices::make(std::vector<Rule> rules, const ChoiceDefaults& defaults) {
  Choices out;
  KnownOptions known(defaults);
  out.rules_ = std::move(rules);
  out.defaults_ = defaults;
  const Spec uncompressed = uncompressed_spec();
  out.min_values_ = defaults.min_values;
  if (defaults.link.known() && defaults.min_values == kDefaultMinValues) {
    const auto cost = [&](const Spec& spec, const Strategy& strategy) {
      return plan::codec_cost_of(spec, strategy, defaults.place(), defaults.link);
    };
    const CodecCost of_uncompressed =
        plan::best_option(known.of_group(uncompressed, {}), kDefaultPartValues).cost;
    std::vector<StrategyOption> options;
    if (defaults.strategy == nullptr)
      options = known.of(defaults.spec, {});
    else
      options.push_back({.strategy = defaults.strategy, .cost = cost(defaults.spec, *defaults.strategy)});
    out.min_values_ = plan::min_worth(options, of_uncompressed, defaults.spec.codec == uncompressed.codec);
  }
  const bool by_link = out.by_link();
  if (out.rules_.size() > kMaxRules)
    return Status(Code::kInvalid, fmt::format("choices: {} rules, at most {}", out.rules_.size(), kMaxRules));
  std::map<std::string_view, std::size_t> whole;
  for (std::size_t i = 0; i < out.rules_.size(); ++i) {
    TITHE_TRY(check_reached(out.rules_, i, whole));
    TITHE_TRY(out.resolve(i));
  }
  out.choices_.push_back(
      {.spec = uncompressed,
       .part_values = defaults.part_values,
       .group = std::string(kSmall),
       .why = fmt::format("tensors below {} values are sent uncompressed", out.min_values_)});
  out.choices_.push_back({.spec = defaults.spec,
                          .strategy = defaults.strategy,
                          .part_values = defaults.part_values,
                          .parts_by_link = by_link,
                          .why = "default",
                          .scheduled = true});
  TITHE_TRY(out.share_momentum());
  // Clipping, like momentum, applies to the whole step.
  for (Choice& c : out.choices_)
    if (c.spec.feedback.clip == 0) c.spec.feedback.clip = defaults.spec.feedback.clip;
  for (Choice& c : out.choices_)
    if (c.strategy == nullptr)
      c.options = c.group.empty() ? known.of(c.spec, c.inside) : known.of_group(c.spec, c.inside);
    else if (c.parts_by_link)  // parts() uses this cost for each tensor
      c.options = {{.strategy = c.strategy,
                    .cost = plan::codec_cost_of(c.spec, *c.strategy, defaults.place(), defaults.link,
                                                c.inside ? &*c.inside : nullptr)}};
  for (std::size_t i = 0; i < out.rules_.size(); ++i) TITHE_TRY(out.check_group(i));
  for (const Choice& c : out.choices_)  // a Spec may come from another source than parse_spec()
    for (const Spec& spec : {c.spec, c.inside_spec()}) {
      Settings settings = spec.settings;
      settings.codec = spec.codec;
      TITHE_TRY(feedback::check_feedback(settings, spec.feedback));
    }
  return out;
}

Status Choices::resolve(std::size_t number) {
  const Rule& rule = rules_[number];
  const Result<const Strategy*> strategy = strategy_named(rule.strategy, defaults_);
  if (!strategy.ok()) return wrong(rule, number, strategy.status().what());
  choices_.push_back({.spec = rule.codec.value_or(defaults_.spec),
                      .inside = rule.inside,
                      .strategy = *strategy,
                      .part_values = rule.part_values > 0 ? rule.part_values : defaults_.part_values,
                      .parts_by_link = rule.part_values == 0 && by_link(),
                      .priority = rule.priority,
                      .group = rule.group,
                      .why = rule.why.empty() ? label(rule, number + 1) : rule.why,
                      .scheduled = !rule.codec});
  return {};
}

// The optimizer has momentum for all tensors or for none.
Status Choices::share_momentum() {
  const bool rest_is_met = std::none_of(rules_.begin(), rules_.end(),
                                        [](const Rule& r) { return any_size(r) && any_key(r.match); });
  const auto who = [&](std::size_t i) {
    return i < rules_.size() ? label(rules_[i], i + 1)
                             : std::string("the session's codec, since no rule matches");
  };
  const Choice* from = nullptr;
  std::size_t first = 0;
  for (std::size_t i = choices_.size(); i-- > 0;)
    if (has_momentum(choices_[i].spec) && (i < rules_.size() || rest_is_met)) {
      from = &choices_[i];
      first = i;
    }
  if (from == nullptr) return {};
  const FeedbackPolicy policy = from->spec.feedback;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    FeedbackPolicy& mine = choices_[i].spec.feedback;
    if (choices_[i].spec.codec->traits.lossless) {
      const double clip = mine.clip > 0 ? mine.clip : policy.clip;
      mine = policy;
      mine.mask = false;
      mine.clip = clip;
    } else if ((i < rules_.size() || rest_is_met) &&
               (mine.kind != Feedback::kMomentum || mine.mu != policy.mu ||
                mine.nesterov != policy.nesterov)) {
      return {Code::kInvalid,
              fmt::format(
                  "choices: {} has {}, and {} has {}: momentum belongs to the whole step, so give all lossy "
                  "codecs the same feedback=momentum, mu and nesterov, or remove feedback=momentum from all",
                  who(i), to_string(choices_[i].spec), who(first), to_string(from->spec))};
    }
  }
  return {};
}

// Checks that a group's codec can be shared by several tensors, and that all rules of the group have the same
// settings.
Status Choices::check_group(std::size_t number) const {
  const Choice& mine = choices_[number];
  if (mine.group.empty()) return {};
  const auto refuse = [&](std::string_view why) {
    return wrong(rules_[number], number, fmt::format("group '{}' {}", mine.group, why));
  };
  const Codec& codec = *mine.spec.codec;
  if (has_cols(codec) || codec.memory != nullptr)
    return refuse(
        fmt::format("cannot have codec {}, which {}: remove the group, or choose another codec", codec.name,
                    has_cols(codec) ? "uses the rows of one tensor" : "keeps a state for each tensor"));
  const std::size_t first =
      mine.group == kSmall
          ? rules_.size()
          : static_cast<std::size_t>(std::find_if(choices_.begin(), choices_.end(),
                                                  [&](const Choice& c) { return c.group == mine.group; }) -
                                     choices_.begin());
  const Choice& other = choices_[first];
  if (other.spec != mine.spec || other.inside != mine.inside || other.strategy != mine.strategy ||
      other.part_values != mine.part_values || other.priority != mine.priority ||
      other.scheduled != mine.scheduled)
    return refuse(fmt::format(
        "is {}, but {} for {}: a group has one codec, strategy, part_values and priority; rename one of the "
        "two groups",
        named(mine), named(other), first < rules_.size() ? label(rules_[first], first + 1) : other.why));
  return {};
}

// ---- The choice for a tensor

std::size_t Choices::rule_of(std::string_view key, std::size_t n) const {
  const auto takes = [&](const Rule& r) { return n >= r.least && n <= r.most && matches(r.match, key); };
  return static_cast<std::size_t>(std::find_if(rules_.begin(), rules_.end(), takes) - rules_.begin());
}

const Choice& Choices::choice(std::string_view key, std::size_t n) const {
  const std::size_t i = rule_of(key, n);
  const Choice& small = choices_[rules_.size()];
  if (i == rules_.size()) return n < min_values_ ? small : choices_.back();
  // Small tensors that a rule sends uncompressed join the other small tensors: their sums have the same bits in any
  // part.
  const Choice& mine = choices_[i];
  const bool joins = n < min_values_ && mine.spec == small.spec && mine.group.empty() &&
                     mine.priority == small.priority && rules_[i].part_values == 0 &&
                     (rules_[i].strategy.empty() || rules_[i].strategy == kAuto);
  return joins ? small : mine;
}

std::size_t Choices::parts(const Choice& choice, std::size_t n) const {
  const StrategyOption* option = choice.option_for(n);
  const Strategy& strategy = option == nullptr ? *choice.strategy : *option->strategy;
  const bool default_size = choice.part_values == kDefaultPartValues && !defaults_.link.known();
  const std::size_t most = default_size ? plan::default_part_values(choice.spec, strategy, defaults_.place())
                                        : std::max<std::size_t>(choice.part_values, 1);
  const std::size_t least = (n + most - 1) / most;
  if (!choice.parts_by_link) return least;
  return std::max(least, plan::best_parts((option == nullptr ? choice.options.front() : *option).cost, n));
}

bool Choices::lossless() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) {
    return c.spec.codec->traits.lossless && c.inside_spec().codec->traits.lossless;
  });
}

std::string Choices::text() const {
  if (rules_.empty()) return {};
  std::vector<Rule> bare = rules_;
  for (Rule& r : bare) r.why.clear();
  return to_json(bare);
}

std::uint64_t Choices::hash() const {
  std::uint64_t h = rules_.size();
  for (const char c : text()) h = mix64(h ^ mix64(static_cast<unsigned char>(c) + 0x9e3779b97f4a7c15ULL));
  return h;
}

std::string Choices::shown() const {
  std::string out;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Choice& c = choices_[i];
    fmt::format_to(std::back_inserter(out), "{}'{}' {}", out.empty() ? "" : "; ", takes(rules_[i]), named(c));
    if (!c.group.empty())
      fmt::format_to(std::back_inserter(out), ", group {}", printable(c.group, kMaxShown));
    if (rules_[i].part_values > 0) fmt::format_to(std::back_inserter(out), ", parts of {}", c.part_values);
  }
  return out;
}

std::string size_text(const Rule& rule) {
  std::string out;
  if (rule.least > 0) out = fmt::format("> {}", rule.least - 1);
  if (rule.most < kMaxValues) out += fmt::format("{}< {}", out.empty() ? "" : ", ", rule.most + 1);
  return out;
}

std::string label(const Rule& rule, std::size_t number) {
  return fmt::format("rule {} ('{}')", number, takes(rule));
}

}  // namespace tithe
