// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choices select codec and strategy of each tensor by its key: a list of rules, as data (docs/guide/choices.md).
//
//   first      the first rule that matches a tensor decides everything about it; rules are not merged. A list goes from
//              the exception to the default; a rule behind one that matches all tensors is refused
//   keyed      a choice depends on the key and the number of values alone, not on the bucket of the tensor
//   total      every tensor matches a rule, because two rules are implied at the end: tensors below `min_values` are
//              sent uncompressed and share parts; all others have the session's codec and strategy
//   momentum   belongs to the step, not to the codec: if one rule has feedback=momentum, lossless codecs have it too,
//              and rules that differ in it are refused
//   text       rules are JSON: parse_rules(to_json(rules)) gives the same rules
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/limits.h"
#include "tithe/seam/graph.h"
#include "tithe/seam/spec.h"
#include "tithe/status.h"

namespace tithe {

// One rule as it is written. The session's options are the defaults of the fields that it does not set.
struct Rule {
  // A key; or a pattern in which `*` stands for any characters, `?` for one. "=a*b" is the key "a*b" itself.
  std::string match = "*";
  std::size_t least = 0, most = kMaxValues;  // values of the tensors that it takes
  std::optional<Spec> codec = {};            // codec between hosts
  std::optional<Spec> inside = {};           // codec between ranks of one host
  std::string strategy =
      {};  // a name in strategies.def, or "auto": the fastest (src/plan/strategy_options.h)
  std::size_t part_values = 0;  // larger tensors are cut into parts of at most this many values; 0: not set
  int priority = 0;             // parts of higher priority run first, whichever bucket they are in
  std::string group = {};       // tensors of one group share parts, where they stand in one bucket
  std::string why = {};         // for people; plans print it
  friend bool operator==(const Rule&, const Rule&) = default;
};

inline constexpr std::size_t kMaxRules = 65'536;
inline constexpr std::size_t kMaxChoicesBytes = std::size_t{1} << 24;

// Rules from JSON, in full or short, docs/guide/choices.md has the fields:
//   {"version": 1, "rules": [{"match": "*.bias", "codec": "fp32"}, {"size": "> 1M", "codec": "dgc:ratio=0.001"}]}
//   {"*.bias": "fp32", "> 1M": "dgc:ratio=0.001"}
// kInvalid with the number of the rule, its pattern, what is wrong and the nearest name that is known.
Result<std::vector<Rule>> parse_rules(std::string_view json);
// In full, one rule a line; fields that are not set are omitted.
std::string to_json(std::span<const Rule> rules);
// "> 1000, < 5000"; empty where it takes all sizes.
std::string size_text(const Rule& rule);
// The name of rule `number`, counted from 1, in messages: rule 2 ('*.bias').
std::string label(const Rule& rule, std::size_t number);

// The cost of a part by a strategy (src/plan/codec_cost.h).
struct CodecCost {
  double compute = 0, inside = 0, wire = 0;  // seconds per value
  double frames = 0;                         // seconds per part, of handling them
  double delay = 0;                          // seconds that its messages take one after the other
  friend bool operator==(const CodecCost&, const CodecCost&) = default;
};

// A strategy that "auto" may choose, and the cost of a part by it.
struct StrategyOption {
  const Strategy* strategy = nullptr;
  CodecCost cost = {};
  bool link_assumed = false;  // the link's rate is unknown: a default was used
  // The codec between ranks of one host; not set: the rule's, else uncompressed values.
  std::optional<Spec> inside = {};
  friend bool operator==(const StrategyOption&, const StrategyOption&) = default;
};

// The choice for one tensor.
struct Choice {
  Spec spec;
  std::optional<Spec> inside = {};
  const Strategy* strategy = nullptr;  // nullptr: the fastest of `options` for the values of the part
  std::vector<StrategyOption> options = {};
  std::size_t part_values = 0;  // of its parts at most
  bool parts_by_link = false;   // fewer, if the link's rate favours it
  int priority = 0;
  std::string group = {};  // empty: it has parts of its own
  std::string why = {};
  bool scheduled = false;  // the session's schedule sets its ratio
  // The option for a tensor, or for a group's part, of `values` values; nullptr if a strategy is named.
  const StrategyOption* option_for(std::size_t values) const;
  const Strategy& strategy_of(std::size_t values) const;
  Spec inside_spec() const;                              // uncompressed if no rule sets it
  Spec inside_spec(const StrategyOption* option) const;  // the option's codec inside, if it has one
  friend bool operator==(const Choice&, const Choice&) = default;
};

// The known properties of the link between two ranks.
struct Link {
  double bytes_per_second = 0;       // 0: nothing is known
  double seconds_per_frame = 50e-6;  // latency of a frame without values, from rank to rank
  // Inside a host that several ranks share: of all its ranks together. 0: nothing is known (src/plan/codec_cost.h).
  double inside_bytes_per_second = 0;
  double inside_seconds_per_frame = 0;  // 0: as between hosts
  bool known() const { return bytes_per_second > 0; }
  friend bool operator==(const Link&, const Link&) = default;
};
// "10Gb/s", "1.2GB/s", "1Gb/s+50us" (with the cost of a frame), "25Gb/s+50us, inside 10GB/s+9us" (with the link that
// the ranks of one host share); empty: nothing is known. kInvalid for anything else.
Result<Link> parse_link(std::string_view text);

inline constexpr std::size_t kDefaultMinValues = 4096;
inline constexpr std::size_t kDefaultPartValues = std::size_t{1} << 22;

// The defaults for all tensors, from the session's options. If the link is known, default values of min_values and
// part_values are derived from the link, the codec, the strategy and the world; other values stay as they are.
struct ChoiceDefaults {
  Spec spec;
  const Strategy* strategy = nullptr;          // nullptr: "auto"
  std::size_t min_values = kDefaultMinValues;  // smaller tensors are sent uncompressed
  std::size_t part_values =
      kDefaultPartValues;  // larger tensors are cut into pieces of at most this many values
  int world = 1;
  Hosts hosts = {};
  int servers = 0;  // ranks, the last ones, that have no values of their own
  Link link = {};
  Place place() const { return {.world = world, .hosts = &hosts, .servers = servers}; }
  friend bool operator==(const ChoiceDefaults&, const ChoiceDefaults&) = default;
};

class Choices {
 public:
  // kInvalid, with the rule and the cure: an unknown strategy, a rule that is never reached, a group that its codec
  // cannot serve (a codec with memory, or one that uses rows) or that has two codecs, feedback that differs in
  // momentum.
  static Result<Choices> make(std::vector<Rule> rules, const ChoiceDefaults& defaults);
  // The session's options alone, without rules.
  static Choices of(const ChoiceDefaults& defaults) { return *make({}, defaults); }

  const Choice& choice(std::string_view key, std::size_t n) const;
  // Smaller tensors that match no rule are sent uncompressed.
  std::size_t min_values() const { return min_values_; }
  // The number of parts of a tensor that shares no part.
  std::size_t parts(const Choice& choice, std::size_t n) const;

  // The index in rules() of the first rule that matches the tensor; rules().size() if none does.
  std::size_t rule_of(std::string_view key, std::size_t n) const;

  std::span<const Rule> rules() const { return rules_; }
  const ChoiceDefaults& defaults() const { return defaults_; }
  // All choices: one per rule, in order, then the choices of the options.
  std::span<const Choice> all() const { return choices_; }
  bool lossless() const;       // no choice leaves a residual
  std::uint64_t hash() const;  // of the rules
  std::string text() const;    // to_json of the rules, without their `why`; empty where there are none
  std::string shown() const;   // on one line: "'*.bias' fp32 by ring; '> 1000000' dgc:ratio=0.001 by gather"

  friend bool operator==(const Choices&, const Choices&) = default;

 private:
  Status resolve(std::size_t number);
  Status check_group(std::size_t number) const;
  Status share_momentum();
  bool by_link() const { return defaults_.link.known() && defaults_.part_values == kDefaultPartValues; }

  std::vector<Rule> rules_;
  ChoiceDefaults defaults_;
  std::size_t min_values_ = 0;
  std::vector<Choice> choices_;  // by rule; then of small tensors, and of the rest
};

// True if `key` fits a rule's `match`.
bool matches(std::string_view match, std::string_view key);
// True if `match` is one key, not a pattern; key_named() gives that key.
bool names_one_key(std::string_view match);
std::string_view key_named(std::string_view match);

}  // namespace tithe
