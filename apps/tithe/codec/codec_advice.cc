// SPDX-License-Identifier: Apache-2.0
// Looks up a codec in the tables of choosing.def; without an entry, describes it by its traits.
#include "codec_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "tithe/seam/catalogue.h"

namespace tithe::cli {
namespace {

struct When {
  std::string_view spec, have;
};
constexpr When kWhen[] = {
#define TITHE_WHEN(spec, have) {spec, have},
#define TITHE_STUDIED(spec, optimizer, verdict)
#include "choosing.def"
#undef TITHE_WHEN
#undef TITHE_STUDIED
};

struct Studied {
  std::string_view spec, optimizer, verdict;
};
constexpr Studied kStudied[] = {
#define TITHE_WHEN(spec, have)
#define TITHE_STUDIED(spec, optimizer, verdict) {spec, optimizer, verdict},
#include "choosing.def"
#undef TITHE_WHEN
#undef TITHE_STUDIED
};

bool keeps_few(const Codec& codec) {
  return std::any_of(codec.params.begin(), codec.params.end(),
                     [](const ParamSpec& p) { return p.name == "ratio" && p.fallback < 1; });
}

// The advice for a codec that docs/start/choosing.md does not mention, from its traits.
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
        fmt::format("; its {} exchanges per round require a network with a short delay", codec.phases.size());
  return text;
}

}  // namespace

double contraction(const Codec& codec, const Settings& settings) {
  return codec.traits.contraction ? codec.traits.contraction(settings, kSample) : 1.0;
}
double contraction(const Codec& codec) { return contraction(codec, defaults(codec)); }

std::string when_to_use(const Spec& spec, double bits) {
  std::string own, others;
  const auto add = [](std::string& text, const std::string& row) {
    text += (text.empty() ? "" : "; ") + row;
  };
  for (const When& when : kWhen) {
    const Result<Spec> row = parse_spec(when.spec);
    TITHE_ASSERT(row.ok());
    if (row->codec != spec.codec) continue;
    const std::string settings = to_string(*row);
    add(others,
        settings == spec.codec->name ? std::string(when.have) : fmt::format("{}: {}", settings, when.have));
    if (row->settings == spec.settings) add(own, std::string(when.have));
  }
  return !own.empty() ? own : !others.empty() ? others : by_traits(*spec.codec, bits);
}

StudyFindings studied(const Spec& spec) {
  const std::string whole = to_string(spec);
  StudyFindings found;
  for (const std::string_view name : {std::string_view(whole), spec.codec->name}) {
    for (const Studied& row : kStudied)
      if (row.spec == name) found.by_optimizer.emplace_back(row.optimizer, row.verdict);
    if (!found.by_optimizer.empty()) {
      found.of_defaults = name != whole && spec.settings != defaults(*spec.codec);
      break;
    }
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
    return Status(Code::kInvalid,
                  fmt::format("'{}' is not in the study of optimizers (docs/start/choosing.md): {}; for "
                              "another optimizer list the allowed codecs with --allow, and compare with fp32",
                              optimizer, suggest(optimizer, known)));
  return found;
}

}  // namespace tithe::cli
