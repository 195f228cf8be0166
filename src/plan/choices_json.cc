// SPDX-License-Identifier: Apache-2.0
// Parses and writes rules as JSON. The text may come from an untrusted source: its size is limited, and unknown
// content is refused.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/nearest.h"
#include "base/text.h"
#include "tithe/choices.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kMaxQuoted = 300;
constexpr std::size_t kMaxJsonMessage = 2000;
constexpr std::size_t kMaxText = 4096;  // of a key, a group or a reason
constexpr double kBytesPerValue = 4;    // a size in bytes counts fp32 values, for all types of tensors
constexpr std::string_view kFields[] = {"match",       "size",     "codec", "inside", "strategy",
                                        "part_values", "priority", "group", "why"};

Status wrong(std::string_view why) { return {Code::kInvalid, fmt::format("choices: {}", why)}; }

// "16KB", "1.5M", "4 Ki": K, M, G are powers of 1000, Ki, Mi, Gi are powers of 1024, B means bytes.
struct Amount {
  double number = 0;
  bool bytes = false;
};

Result<Amount> parse_amount(std::string_view text) {
  const Status not_one(Code::kInvalid, fmt::format("'{}' is not a number of values, such as 4096, 1M or 16KB",
                                                   printable(text, kMaxQuoted)));
  Amount out;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.number);
  if (error != std::errc{} || !std::isfinite(out.number) || out.number < 0) return not_one;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  constexpr std::string_view kPrefixes = "KMG";
  if (const std::size_t power = unit.empty() ? std::string_view::npos : kPrefixes.find(unit[0]);
      power != std::string_view::npos) {
    unit.remove_prefix(1);
    const bool binary = unit.starts_with('i');
    unit.remove_prefix(binary ? 1 : 0);
    for (std::size_t k = 0; k <= power; ++k) out.number *= binary ? 1024 : 1000;
  }
  out.bytes = unit == "B";
  if (!unit.empty() && !out.bytes) return not_one;
  if (out.number > kBytesPerValue * static_cast<double>(kMaxValues)) return not_one;
  return out;
}

// Applies one comparison, such as "> 1M" or "<= 16KB", to the rule's size range.
Status narrow(Rule& rule, std::string_view text) {
  const bool less = text.starts_with('<');
  if (!less && !text.starts_with('>'))
    return {Code::kInvalid,
            fmt::format("size '{}' must begin with <, <=, > or >=", printable(text, kMaxQuoted))};
  text.remove_prefix(1);
  const bool equal = text.starts_with('=');
  text.remove_prefix(equal ? 1 : 0);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const Result<Amount> amount = parse_amount(text);
  if (!amount.ok()) return amount.status();
  const double values = amount->bytes ? amount->number / kBytesPerValue : amount->number;
  if (less) {
    const double most = equal ? std::floor(values) : std::ceil(values) - 1;
    if (most < 0) return {Code::kInvalid, "no tensor has less than 0 values"};
    rule.most = std::min(rule.most, static_cast<std::size_t>(most));
  } else {
    const double least = equal ? std::ceil(values) : std::floor(values) + 1;
    rule.least = std::max(rule.least, static_cast<std::size_t>(least));
  }
  return {};
}

Status parse_size(Rule& rule, std::string_view text) {
  while (true) {
    const std::size_t comma = text.find(',');
    TITHE_TRY(narrow(rule, text.substr(0, comma)));
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
}

Status read_part_values(Rule& rule, const Json& value) {
  Amount amount;
  if (value.is_number_unsigned()) {
    amount.number = value.get<double>();
  } else if (value.is_string()) {
    const Result<Amount> parsed = parse_amount(value.get_ref<const std::string&>());
    if (!parsed.ok()) return parsed.status();
    amount = *parsed;
  }
  const double values = amount.bytes ? amount.number / kBytesPerValue : amount.number;
  if (!(values >= 1 && values <= static_cast<double>(kMaxValues)))
    return {Code::kInvalid, fmt::format("part_values must be a number of values, 1 .. {}", kMaxValues)};
  rule.part_values = static_cast<std::size_t>(values);
  return {};
}

Status read_field(Rule& rule, const std::string& field, const Json& value) {
  const auto take = [&](std::string& into) -> Status {
    if (!value.is_string()) return {Code::kInvalid, fmt::format("'{}' must be a string", field)};
    into = value.get<std::string>();
    if (into.size() <= kMaxText) return {};
    return {Code::kInvalid, fmt::format("'{}' is longer than {} bytes", field, kMaxText)};
  };
  if (field == "match") return take(rule.match);
  if (field == "strategy") return take(rule.strategy);
  if (field == "group") return take(rule.group);
  if (field == "why") return take(rule.why);
  std::string text;
  if (field == "size" || field == "codec" || field == "inside") TITHE_TRY(take(text));
  if (field == "size") return parse_size(rule, text);
  if (field == "codec" || field == "inside") {
    const Result<Spec> spec = parse_spec(text);
    if (!spec.ok()) return spec.status();
    (field == "codec" ? rule.codec : rule.inside) = *spec;
    return {};
  }
  if (field == "part_values") return read_part_values(rule, value);
  if (field == "priority") {
    constexpr std::int64_t kMaxPriority = 1'000'000;
    if (!value.is_number_integer() || value.get<std::int64_t>() < -kMaxPriority ||
        value.get<std::int64_t>() > kMaxPriority)
      return {Code::kInvalid,
              fmt::format("priority must be a whole number, {} .. {}", -kMaxPriority, kMaxPriority)};
    rule.priority = value.get<int>();
    return {};
  }
  return {Code::kInvalid,
          fmt::format("unknown field '{}': {}", printable(field, kMaxQuoted), suggest(field, kFields))};
}

Status read_fields(Rule& rule, const Json& object) {
  if (!object.is_object())
    return {Code::kInvalid, R"(must be an object such as {"match": "*.bias", "codec": "fp32"})"};
  // The fields that select tensors are read first, because messages name the rule by them.
  for (const bool takes : {true, false})
    for (const auto& [field, value] : object.items())
      if ((field == "match" || field == "size") == takes) TITHE_TRY(read_field(rule, field, value));
  return {};
}

// The short form: "> 1M": "fp32", or "*.bias": {...}. The key selects the tensors.
Status read_short(Rule& rule, const std::string& takes, const Json& value) {
  if (takes.size() > kMaxText) return {Code::kInvalid, fmt::format("is longer than {} bytes", kMaxText)};
  if (takes.starts_with('<') || takes.starts_with('>'))
    TITHE_TRY(parse_size(rule, takes));
  else
    rule.match = takes;
  if (value.is_object()) {
    if (value.contains("match"))
      return {Code::kInvalid, "'match' is the key of the entry already: remove the field"};
    return read_fields(rule, value);
  }
  if (!value.is_string()) return {Code::kInvalid, "must be a codec as a string, or an object of fields"};
  return read_field(rule, "codec", value);
}

// Two forms: {"version": 1, "rules": [...]}, or short: {"*.bias": "fp32"}. An error names the rule by its number and
// by the tensors that it selects.
Result<std::vector<Rule>> read_all(const Json& root) {
  if (!root.is_object())
    return wrong(R"(must be an object: {"version": 1, "rules": [...]}, or short {"*.bias": "fp32"})");
  std::vector<Rule> rules;
  const auto add = [&](const auto& read) -> Status {
    if (rules.size() == kMaxRules) return wrong(fmt::format("more than {} rules", kMaxRules));
    Rule rule;
    if (const Status s = read(rule); !s.ok())
      return wrong(
          printable(fmt::format("{}: {}", label(rule, rules.size() + 1), s.what()), kMaxJsonMessage));
    rules.push_back(std::move(rule));
    return {};
  };
  if (!root.contains("rules")) {
    for (const auto& one : root.items())  // no structured binding: clang 14 cannot capture it
      TITHE_TRY(add([&](Rule& rule) { return read_short(rule, one.key(), one.value()); }));
    return rules;
  }
  for (const auto& [name, value] : root.items())
    if (name != "version" && name != "rules")
      return wrong(fmt::format("unknown field '{}' next to 'rules': known: version, rules",
                               printable(name, kMaxQuoted)));
  if (!root.contains("version") || root["version"] != kVersion)
    return wrong(fmt::format("'version' must be next to 'rules' and be {}, the version that this build reads",
                             kVersion));
  if (!root["rules"].is_array()) return wrong("'rules' must be a list");
  for (const Json& one : root["rules"]) TITHE_TRY(add([&](Rule& rule) { return read_fields(rule, one); }));
  return rules;
}

}  // namespace

// Names that occur twice in an object are detected while parsing, because the JSON library keeps only the last one.
Result<std::vector<Rule>> parse_rules(std::string_view json) {
  if (json.size() > kMaxChoicesBytes)
    return wrong(fmt::format("{} bytes of JSON, at most {}", json.size(), kMaxChoicesBytes));
  std::vector<std::set<std::string>> open;  // the names seen in each open object
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second &&
        twice.empty())
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    const Json root = Json::parse(json.begin(), json.end(), watch);
    if (!twice.empty())
      return wrong(fmt::format("'{}' occurs twice in one object", printable(twice, kMaxQuoted)));
    return read_all(root);
  } catch (
      // The text is not JSON. The library's message begins with its own error number.
      const Json::exception& e) {
    const std::string_view what = e.what();
    return wrong("not valid JSON: " +
                 printable(what.substr(std::min(what.find("] ") + 2, what.size())), kMaxQuoted));
  }
}

std::string to_json(std::span<const Rule> rules) {
  std::string out = fmt::format("{{\"version\": {}, \"rules\": [", kVersion);
  for (const Rule& rule : rules) {
    Json one = Json::object();
    const auto say = [&](std::string_view field, const std::string& text) {
      if (!text.empty()) one[std::string(field)] = text;
    };
    const std::string size = size_text(rule);
    if (rule.match != "*" || size.empty()) one["match"] = rule.match;
    say("size", size);
    if (rule.codec) one["codec"] = to_string(*rule.codec);
    if (rule.inside) one["inside"] = to_string(*rule.inside);
    say("strategy", rule.strategy);
    if (rule.part_values > 0) one["part_values"] = rule.part_values;
    if (rule.priority != 0) one["priority"] = rule.priority;
    say("group", rule.group);
    say("why", rule.why);
    out += out.ends_with('[') ? "\n  " : ",\n  ";
    out += one.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out + (rules.empty() ? "]}" : "\n]}");
}

}  // namespace tithe
