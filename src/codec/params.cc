// SPDX-License-Identifier: Apache-2.0
#include "codec/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/nearest.h"

namespace tithe::params {
namespace {

Result<double> parse_value(const ParamSpec& param, std::string_view text) {
  if (!param.choices.empty()) {
    const auto it = std::find(param.choices.begin(), param.choices.end(), text);
    if (it != param.choices.end()) return static_cast<double>(it - param.choices.begin());
    return Status(Code::kInvalid, fmt::format("{}={}: {}", param.name, text, suggest(text, param.choices)));
  }
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size())
    return Status(Code::kInvalid, fmt::format("{}={}: not a number", param.name, text));
  if (!(v >= param.low && v <= param.high))
    return Status(Code::kInvalid,
                  fmt::format("{}={}: must be in {} .. {}", param.name, text, param.low, param.high));
  if (param.whole && v != std::floor(v))
    return Status(Code::kInvalid, fmt::format("{}={}: must be a whole number, for example {} or {}",
                                              param.name, text, std::floor(v), std::ceil(v)));
  return v;
}

// The parameter of this name, and the address of its value; nullptr if there is none.
std::pair<const ParamSpec*, double*> find(std::span<const Table> tables, std::string_view name) {
  for (const Table& table : tables)
    for (std::size_t i = 0; i < table.params.size(); ++i)
      if (table.params[i].name == name) return {&table.params[i], &table.values[i]};
  return {nullptr, nullptr};
}

}  // namespace

// Parses "name:key=value,...": each key at most once, each value within its range.
Status parse(const Codec& codec, std::string_view spec, std::span<const Table> tables) {
  const std::size_t colon = spec.find(':');
  if (colon == std::string_view::npos) return {};
  std::string_view rest = spec.substr(colon + 1);
  if (rest.empty()) return {Code::kInvalid, fmt::format("'{}': nothing after the colon", spec)};
  std::vector<std::string_view> seen;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return {Code::kInvalid, fmt::format("'{}' in '{}': expected name=value", item, spec)};
    const std::string_view key = item.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return {Code::kInvalid, fmt::format("'{}' occurs twice in '{}'", key, spec)};
    seen.push_back(key);
    const auto [param, into] = find(tables, key);
    if (param == nullptr) {
      std::vector<std::string_view> names;
      for (const Table& table : tables)
        for (const ParamSpec& p : table.params) names.push_back(p.name);
      return {Code::kInvalid,
              fmt::format("{} has no parameter '{}': {}", codec.name, key, suggest(key, names))};
    }
    const Result<double> value = parse_value(*param, item.substr(equals + 1));
    if (!value.ok()) return {Code::kInvalid, fmt::format("{}: {}", codec.name, value.status().what())};
    *into = *value;
  }
  return {};
}

void append(std::string& spec, const ParamSpec& param, double value, double fallback) {
  if (value == fallback) return;
  spec += spec.find(':') == std::string::npos ? ':' : ',';
  if (param.choices.empty())
    fmt::format_to(std::back_inserter(spec), "{}={}", param.name, value);
  else
    fmt::format_to(std::back_inserter(spec), "{}={}", param.name,
                   param.choices[static_cast<std::size_t>(value)]);
}

}  // namespace tithe::params
