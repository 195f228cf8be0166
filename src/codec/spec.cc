// SPDX-License-Identifier: Apache-2.0
#include "tithe/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace tithe {
namespace {

enum FeedbackParam : std::size_t { kKind, kMu, kBeta, kMask, kNesterov, kClip, kFeedbackParams };
constexpr double kAsFits = 2;  // third choice of mask: on where the codec selects values

constexpr std::string_view kKinds[] = {"none", "residual", "momentum", "decay", "default"};
constexpr std::string_view kSwitch[] = {"off", "on"};
constexpr std::string_view kSwitchOrDefault[] = {"off", "on", "default"};
constexpr ParamSpec kFeedback[kFeedbackParams] = {
    {"feedback", 4, 0, 4,
     "what happens to values that were not sent; default: none if lossless, else residual", kKinds},
    {"mu", 0.9, 0, 1, "momentum of the correction (feedback=momentum)"},
    {"beta", 0.9, 0, 1, "part of the residual that is kept each round (feedback=decay)"},
    {"mask", kAsFits, 0, 2, "momentum factor masking; default: on where the codec selects values",
     kSwitchOrDefault},
    {"nesterov", 0, 0, 1, "Nesterov form of the momentum", kSwitch},
    {"clip", 0, 0, 1e30, "largest L2 norm of a tensor's gradient on one rank; 0 = no clipping"},
};

// Levenshtein distance, for "did you mean".
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t swap = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, swap});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view wrong, std::span<const std::string_view> known) {
  std::string all;
  std::string_view best;
  std::size_t least = 4;  // further away is no help
  for (const std::string_view k : known) {
    fmt::format_to(std::back_inserter(all), "{}{}", all.empty() ? "" : ", ", k);
    if (const std::size_t d = distance(wrong, k); d < least) {
      least = d;
      best = k;
    }
  }
  return best.empty() ? fmt::format("known: {}", all)
                      : fmt::format("did you mean '{}'? known: {}", best, all);
}

Result<double> parse_value(const ParamSpec& param, std::string_view text) {
  if (!param.choices.empty()) {
    const auto it = std::find(param.choices.begin(), param.choices.end(), text);
    if (it != param.choices.end()) return static_cast<double>(it - param.choices.begin());
    return Status(Code::kInvalid, fmt::format("{}={}: {}", param.name, text, nearest(text, param.choices)));
  }
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size())
    return Status(Code::kInvalid, fmt::format("{}={}: not a number", param.name, text));
  if (!(v >= param.low && v <= param.high))
    return Status(Code::kInvalid,
                  fmt::format("{}={}: must lie in {} .. {}", param.name, text, param.low, param.high));
  return v;
}

void append(std::string& out, const ParamSpec& param, double value, double fallback) {
  if (value == fallback) return;
  out += out.find(':') == std::string::npos ? ':' : ',';
  if (param.choices.empty())
    fmt::format_to(std::back_inserter(out), "{}={}", param.name, value);
  else
    fmt::format_to(std::back_inserter(out), "{}={}", param.name,
                   param.choices[static_cast<std::size_t>(value)]);
}

Feedback default_feedback(const Codec& codec) {
  return codec.traits.lossless ? Feedback::kNone : Feedback::kResidual;
}

}  // namespace

std::string_view name(Feedback feedback) { return kKinds[static_cast<std::size_t>(feedback)]; }

std::span<const ParamSpec> feedback_params() { return kFeedback; }

Result<Spec> parse_spec(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view codec_name = text.substr(0, colon);
  Spec spec;
  spec.codec = find_codec(codec_name);
  if (spec.codec == nullptr) {
    std::vector<std::string_view> names;
    for (const Codec* c : all_codecs()) names.push_back(c->name);
    return Status(Code::kInvalid,
                  fmt::format("unknown codec '{}': {}", codec_name, nearest(codec_name, names)));
  }
  spec.settings = defaults(*spec.codec);
  double feedback[kFeedbackParams];
  for (std::size_t i = 0; i < kFeedbackParams; ++i) feedback[i] = kFeedback[i].fallback;

  std::vector<std::string_view> seen;
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty())
    return Status(Code::kInvalid, fmt::format("'{}': nothing after the colon", text));
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return Status(Code::kInvalid, fmt::format("'{}' in '{}': expected name=value", item, text));
    const std::string_view key = item.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return Status(Code::kInvalid, fmt::format("'{}' stands twice in '{}'", key, text));
    seen.push_back(key);

    const auto matches = [&](const ParamSpec& p) { return p.name == key; };
    const auto own = std::find_if(spec.codec->params.begin(), spec.codec->params.end(), matches);
    const auto common = std::find_if(std::begin(kFeedback), std::end(kFeedback), matches);
    double* slot = nullptr;
    const ParamSpec* param = nullptr;
    if (own != spec.codec->params.end()) {
      param = &*own;
      slot = &spec.settings.value[static_cast<std::size_t>(own - spec.codec->params.begin())];
    } else if (common != std::end(kFeedback)) {
      param = &*common;
      slot = &feedback[common - std::begin(kFeedback)];
    } else {
      std::vector<std::string_view> names;
      for (const ParamSpec& p : spec.codec->params) names.push_back(p.name);
      for (const ParamSpec& p : kFeedback) names.push_back(p.name);
      return Status(Code::kInvalid,
                    fmt::format("{} has no parameter '{}': {}", spec.codec->name, key, nearest(key, names)));
    }
    Result<double> value = parse_value(*param, item.substr(equals + 1));
    if (!value.ok())
      return Status(Code::kInvalid, fmt::format("{}: {}", spec.codec->name, value.status().what()));
    *slot = *value;
  }

  FeedbackPolicy& f = spec.feedback;
  f.kind = feedback[kKind] == kFeedback[kKind].fallback
               ? default_feedback(*spec.codec)
               : static_cast<Feedback>(static_cast<int>(feedback[kKind]));
  f.mu = feedback[kMu];
  f.beta = feedback[kBeta];
  f.nesterov = feedback[kNesterov] != 0;
  f.clip = feedback[kClip];
  f.mask = feedback[kMask] == kAsFits ? f.kind == Feedback::kMomentum && spec.codec->traits.selects
                                      : feedback[kMask] != 0;
  if (f.mask && !spec.codec->traits.selects)
    return Status(
        Code::kInvalid,
        fmt::format("{}: mask=on needs a codec that selects values; {} sends a little of every value",
                    spec.codec->name, spec.codec->name));
  if (spec.codec->traits.lossless && f.kind != Feedback::kNone)
    return Status(Code::kInvalid,
                  fmt::format("{} is lossless: there is nothing to feed back", spec.codec->name));
  return spec;
}

std::string to_string(const Spec& spec) {
  std::string out(spec.codec->name);
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i)
    append(out, spec.codec->params[i], spec.settings[i], spec.codec->params[i].fallback);
  const FeedbackPolicy& f = spec.feedback;
  const bool masks_by_default = f.kind == Feedback::kMomentum && spec.codec->traits.selects;
  append(out, kFeedback[kKind], static_cast<double>(f.kind),
         static_cast<double>(default_feedback(*spec.codec)));
  append(out, kFeedback[kMu], f.mu, kFeedback[kMu].fallback);
  append(out, kFeedback[kBeta], f.beta, kFeedback[kBeta].fallback);
  append(out, kFeedback[kMask], f.mask, masks_by_default);
  append(out, kFeedback[kNesterov], f.nesterov, 0);
  append(out, kFeedback[kClip], f.clip, 0);
  return out;
}

}  // namespace tithe
