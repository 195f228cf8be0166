// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codecs that a user allows for each tensor: the constraint of a plan (docs/guide/plan.md), and of codec "auto".
//
//   allowed   fp32, bf16 and zip are always allowed; all other codecs only if the user lists them. Entries with a
//             pattern are exceptions: a tensor that matches a pattern may use only its entries, fp32 and zip
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/choices.h"

namespace tithe {

// One entry of the user's list.
struct Allowance {
  std::string match;  // of keys; empty: all
  Spec codec;
  friend bool operator==(const Allowance&, const Allowance&) = default;
};
// Parses "onebit" or "*.weight: dgc:ratio=0.01"; patterns are as in choices. kInvalid with the cure.
Result<Allowance> parse_allowance(std::string_view text);
std::string to_string(const Allowance& allowance);

// The codecs that a tensor may use: fp32, bf16, zip, then the listed ones in order.
std::vector<Spec> codecs_for(std::span<const Allowance> allowed, std::string_view key);
// True if the codec is lossless or keeps 16 bits per value, so that no permission is needed.
bool always_allowed(const Spec& spec);
// fp32, bf16 and zip, by their traits: plans and codec "auto" measure and try them without permission.
std::vector<Spec> default_codecs();
Spec uncompressed_spec();  // fp32
Spec half_spec();          // bf16: the codec with loss that needs no permission

// Codec "auto" of a session: "auto", or "auto:allow=onebit+*.bias: fp32", with entries joined by plus signs.
struct AutoSpec {
  std::vector<Allowance> allowed;
  friend bool operator==(const AutoSpec&, const AutoSpec&) = default;
};
bool is_auto(std::string_view codec);
// kInvalid, with the cure, for any other text, and for codecs with momentum, which a session cannot change.
Result<AutoSpec> parse_auto(std::string_view codec);
std::string to_string(const AutoSpec& spec);  // parse_auto() of the result gives the same AutoSpec

// The rules at a session's start: bf16, and fp32 for tensors with an exception.
std::vector<Rule> first_rules(const AutoSpec& spec);
// The codec of tensors without a rule: bf16 for "auto", otherwise the parsed codec.
Result<Spec> first_spec(std::string_view codec);

}  // namespace tithe
