// SPDX-License-Identifier: Apache-2.0
#include "plan/allowance.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

constexpr std::string_view kAutoName = "auto", kAllow = "allow=";
constexpr std::size_t kMaxAllowShown = 100;

// The first codec of codecs.def with these traits, which must exist, in its default settings.
Spec first_with(bool (*condition)(const Traits&)) {
  return *parse_spec((*std::ranges::find_if(all_codecs(), condition, &Codec::traits))->name);
}

}  // namespace

Result<Allowance> parse_allowance(std::string_view text) {
  Allowance out;
  const std::size_t colon = text.find(": ");
  std::string_view codec = text;
  if (colon != std::string_view::npos) {
    out.match = std::string(text.substr(0, colon));
    codec = text.substr(colon + 2);
    if (out.match.empty())
      return Status(Code::kInvalid, fmt::format("allowed '{}': the pattern of keys before ': ' is empty",
                                                printable(text, kMaxAllowShown)));
  }
  const Result<Spec> spec = parse_spec(codec);
  if (!spec.ok())
    return Status(spec.status().code(), fmt::format("allowed '{}': {}; give a codec, or 'PATTERN: CODEC'",
                                                    printable(text, kMaxAllowShown), spec.status().what()));
  out.codec = *spec;
  return out;
}

std::string to_string(const Allowance& allowance) {
  return (allowance.match.empty() ? std::string() : allowance.match + ": ") + to_string(allowance.codec);
}

bool always_allowed(const Spec& spec) {
  return spec.codec->traits.lossless || spec.codec->traits.always_allowed;
}

std::vector<Spec> default_codecs() {
  std::vector<Spec> out;
  for (const Codec* codec : all_codecs())
    if (codec->traits.lossless || codec->traits.always_allowed) out.push_back(*parse_spec(codec->name));
  return out;
}

Spec uncompressed_spec() {
  return first_with([](const Traits& t) { return t.uncompressed; });
}

Spec half_spec() {
  return first_with([](const Traits& t) { return t.always_allowed && !t.lossless; });
}

std::vector<Spec> codecs_for(std::span<const Allowance> allowed, std::string_view key) {
  std::vector<Spec> named, general;
  bool taken = false;
  for (const Allowance& a : allowed) {
    if (a.match.empty()) {
      general.push_back(a.codec);
    } else if (matches(a.match, key)) {
      taken = true;
      named.push_back(a.codec);
    }
  }
  std::vector<Spec> out = default_codecs();
  if (taken) std::erase_if(out, [](const Spec& s) { return !s.codec->traits.lossless; });
  for (const Spec& s : taken ? named : general)
    if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  return out;
}

bool is_auto(std::string_view codec) {
  return codec == kAutoName || (codec.starts_with(kAutoName) && codec[kAutoName.size()] == ':');
}

// "auto", or "auto:allow=" and allowances joined by '+'. An allowance that occurs twice counts once.
Result<AutoSpec> parse_auto(std::string_view codec) {
  if (!is_auto(codec))
    return Status(Code::kInvalid, fmt::format("codec '{}' is not auto", printable(codec, kMaxAllowShown)));
  AutoSpec out;
  if (codec == kAutoName) return out;
  codec.remove_prefix(kAutoName.size() + 1);
  std::string_view list = codec;
  if (!list.starts_with(kAllow))
    return Status(Code::kInvalid,
                  fmt::format("codec 'auto:{}': auto has one parameter, allow: the codecs that it may use in "
                              "addition to fp32, bf16 and zip, such as auto:allow=onebit+fp8",
                              printable(list, kMaxAllowShown)));
  list.remove_prefix(kAllow.size());
  for (bool more = true; more;) {
    const std::size_t plus = list.find('+');
    more = plus != std::string_view::npos;
    const Result<Allowance> one = parse_allowance(list.substr(0, plus));
    if (!one.ok()) return Status(one.status().code(), "codec auto: " + one.status().what());
    if (one->codec.feedback.kind == Feedback::kMomentum)
      return Status(Code::kInvalid,
                    fmt::format("codec auto: allowed '{}': momentum belongs to the whole step, and auto "
                                "changes codecs during the job: omit feedback=momentum",
                                to_string(*one)));
    if (std::find(out.allowed.begin(), out.allowed.end(), *one) == out.allowed.end())
      out.allowed.push_back(*one);
    if (more) list.remove_prefix(plus + 1);
  }
  return out;
}

std::string to_string(const AutoSpec& spec) {
  std::string out(kAutoName);
  for (std::size_t k = 0; k < spec.allowed.size(); ++k)
    out += (k == 0 ? ":allow=" : "+") + to_string(spec.allowed[k]);
  return out;
}

std::vector<Rule> first_rules(const AutoSpec& spec) {
  std::vector<Rule> out;
  for (const Allowance& a : spec.allowed) {
    const auto same = [&](const Rule& r) { return r.match == a.match; };
    if (a.match.empty() || std::any_of(out.begin(), out.end(), same)) continue;
    out.push_back({.match = a.match, .codec = uncompressed_spec(), .why = "auto: measured first"});
  }
  return out;
}

Result<Spec> first_spec(std::string_view codec) { return is_auto(codec) ? half_spec() : parse_spec(codec); }

}  // namespace tithe
