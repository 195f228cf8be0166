// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codecs that a user allows for each tensor: the constraint of a plan (docs/guide/plan.md), and of codec "auto".
//
//   allowed   fp32, bf16 and zip always are, and nothing else without a word of the user. Entries with a pattern are
//             exceptions: a tensor that such a pattern takes may use what these entries say, fp32 and zip, alone
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/choices.h"

namespace tithe {

// One thing that a user allows.
struct Allowance {
  std::string match;  // of keys; empty: all
  Spec codec;
  friend bool operator==(const Allowance&, const Allowance&) = default;
};
// "onebit"; "*.weight: dgc:ratio=0.01", a pattern of keys as in choices. kInvalid with the cure.
Result<Allowance> parse_allowance(std::string_view text);
std::string to_string(const Allowance& allowance);

// The codecs that a tensor may have: fp32, bf16, zip, then the others in the order in which they are allowed.
std::vector<Spec> codecs_for(std::span<const Allowance> allowed, std::string_view key);
// True: it loses nothing, or keeps 16 bits of a value, so that no one needs to be asked.
bool always_allowed(const Spec& spec);
// fp32, bf16 and zip, which plans and codec "auto" measure and try without a word.
std::vector<Spec> default_codecs();

// Codec "auto" of a session: "auto", or "auto:allow=onebit+*.bias: fp32", what is allowed with a plus between.
struct AutoSpec {
  std::vector<Allowance> allowed;
  friend bool operator==(const AutoSpec&, const AutoSpec&) = default;
};
bool is_auto(std::string_view codec);
// kInvalid, with the cure, for anything else, and for codecs with a momentum, which a session cannot change.
Result<AutoSpec> parse_auto(std::string_view codec);
std::string to_string(const AutoSpec& spec);  // parse_auto() gives the same

// The rules that a session begins with: bf16, and fp32 for tensors that have an exception.
std::vector<Rule> first_rules(const AutoSpec& spec);
// The codec of tensors that no rule takes: bf16 for "auto", else what the text says.
Result<Spec> first_spec(std::string_view codec);

}  // namespace tithe
