// SPDX-License-Identifier: Apache-2.0
#include "when.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"

namespace tithe::cli {
namespace {

struct When {
  std::string_view codec, have;
};
constexpr When kWhen[] = {
#define TITHE_WHEN(codec, have) {codec, have},
#define TITHE_STUDIED(spec, optimizer, verdict)
#include "choosing.def"
#undef TITHE_WHEN
#undef TITHE_STUDIED
};

struct Studied {
  std::string_view spec, optimizer, verdict;
};
constexpr Studied kStudied[] = {
#define TITHE_WHEN(codec, have)
#define TITHE_STUDIED(spec, optimizer, verdict) {spec, optimizer, verdict},
#include "choosing.def"
#undef TITHE_WHEN
#undef TITHE_STUDIED
};

bool keeps_few(const Codec& codec) {
  return std::any_of(codec.params.begin(), codec.params.end(),
                     [](const ParamSpec& p) { return p.name == "ratio" && p.fallback < 1; });
}

// The advice for a codec that the page does not speak of.
std::string by_traits(const Codec& codec, double bits) {
  std::string text;
  if (codec.traits.lossless)
    text = "where nothing may be lost, and as the baseline of others";
  else if (keeps_few(codec))
    text = "on slow links: few values are sent each round, the rest later";
  else if (bits >= 16)
    text = "where accuracy comes first: it loses little, and saves at most half";
  else if (bits > 6 && contraction(codec) < 0.1)
    text = "nearly everywhere: about a quarter of the bytes, and little is lost";
  else if (bits > 6)
    text = "where a quarter of the bytes will do, for gradients that suit it";
  else
    text = "on slow links: a few bits per value";
  if (codec.traits.unbiased)
    text += "; right on average, so it may run without feedback";
  else if (!codec.traits.lossless)
    text += "; keep feedback on";
  if (codec.phases.size() > 1)
    text +=
        fmt::format("; its {} exchanges per round ask for a network of little delay", codec.phases.size());
  return text;
}

}  // namespace

double contraction(const Codec& codec, const Settings& settings) {
  return codec.traits.contraction ? codec.traits.contraction(settings, kSample) : 1.0;
}
double contraction(const Codec& codec) { return contraction(codec, defaults(codec)); }

std::string when_to_use(const Codec& codec, double bits) {
  std::string text;
  for (const When& when : kWhen)
    if (when.codec == codec.name) text += fmt::format("{}{}", text.empty() ? "" : "; ", when.have);
  return text.empty() ? by_traits(codec, bits) : text;
}

std::vector<std::pair<std::string_view, std::string_view>> studied(const Spec& spec) {
  const std::string whole = to_string(spec);
  std::vector<std::pair<std::string_view, std::string_view>> found;
  for (const std::string_view name : {std::string_view(whole), spec.codec->name}) {
    for (const Studied& row : kStudied)
      if (row.spec == name) found.emplace_back(row.optimizer, row.verdict);
    if (!found.empty()) break;
  }
  return found;
}

Result<std::vector<std::string_view>> within_noise(std::string_view optimizer) {
  std::vector<std::string_view> known, found;
  for (const Studied& row : kStudied) {
    if (std::find(known.begin(), known.end(), row.optimizer) == known.end()) known.push_back(row.optimizer);
    if (row.optimizer == optimizer && row.verdict == "yes" &&
        row.spec.find("feedback=momentum") == std::string_view::npos)
      found.push_back(row.spec);
  }
  if (found.empty())
    return Status(Code::kInvalid, fmt::format("'{}': {}", optimizer, suggest(optimizer, known)));
  return found;
}

}  // namespace tithe::cli
