// SPDX-License-Identifier: Apache-2.0
// tithe codecs: what can be chosen, and what each sends.
#include <fmt/format.h>

#include "one_shot.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr std::size_t kSample = std::size_t{1} << 20;  // values over which bits per value are counted

Json param_json(const ParamSpec& p) {
  Json json = {{"name", p.name}, {"doc", p.doc}};
  if (p.choices.empty()) {
    json["default"] = p.fallback;
    json["low"] = p.low;
    json["high"] = p.high;
  } else {
    json["default"] = p.choices[static_cast<std::size_t>(p.fallback)];
    json["choices"] = p.choices;
  }
  return json;
}

std::string param_text(const ParamSpec& p) {
  return p.choices.empty() ? fmt::format("{}={}", p.name, p.fallback)
                           : fmt::format("{}={}", p.name, p.choices[static_cast<std::size_t>(p.fallback)]);
}

// Of the sample's payload where the first phase can stand alone, else of the bounds.
Result<double> bits_per_value(const Codec& codec, std::span<const float> sample) {
  Spec spec{&codec, defaults(codec), {}};
  if (codec.phases.size() == 1) {
    Result<Lossy> once = encode_once(spec, sample, 1);
    if (!once.ok()) return once.status();
    return 8.0 * static_cast<double>(once->payload.size()) / static_cast<double>(sample.size());
  }
  double bytes = 0;
  for (const Phase& phase : codec.phases)
    bytes += static_cast<double>(phase.bound(spec.settings, sample.size()));
  return 8 * bytes / static_cast<double>(sample.size());
}

// The part of the energy that one round may lose at default settings.
double contraction(const Codec& codec) {
  return codec.traits.contraction ? codec.traits.contraction(defaults(codec), kSample) : 1.0;
}

// Whether what is not sent must wait in the residual, or training suffers.
const char* needs_feedback(const Codec& codec) {
  if (codec.traits.lossless) return "nothing is lost";
  if (codec.traits.unbiased) return "no";
  return contraction(codec) < 1e-3 ? "hardly" : "yes";
}

Result<Report> list_codecs() {
  const std::vector<float> sample = bell_values(kSample, 1);
  Report report;
  report.json = {{"codecs", Json::array()}, {"feedback", Json::array()}};
  report.text = fmt::format("{:<15} {:>3} {:>11} {:<15} {:<7} {:>9} {:<33} {}\n", "name", "id", "bits/value",
                            "needs feedback", "ledger", "loses", "phases (laws)", "parameters");
  for (const Codec* codec : all_codecs()) {
    Result<double> bits = bits_per_value(*codec, sample);
    if (!bits.ok()) return bits.status();
    Json phases = Json::array();
    std::string phase_text;
    for (const Phase& phase : codec->phases) {
      Json laws = Json::array();
      std::string law_text;
      for (const Law law : phase.laws) {
        laws.push_back(name(law));
        law_text += fmt::format("{}{}", law_text.empty() ? "" : ",", name(law));
      }
      phases.push_back({{"name", phase.name}, {"laws", laws}});
      phase_text += fmt::format("{}{} ({})", phase_text.empty() ? "" : " ", phase.name, law_text);
    }
    Json params = Json::array();
    std::string param_list;
    for (const ParamSpec& p : codec->params) {
      params.push_back(param_json(p));
      param_list += fmt::format("{}{}", param_list.empty() ? "" : " ", param_text(p));
    }
    Json impls = Json::array();
    for (const Impl& impl : codec->impls)
      if (impl.usable(this_machine())) impls.push_back(impl.name);
    report.json["codecs"].push_back({{"name", codec->name},
                                     {"id", static_cast<int>(codec->id)},
                                     {"doc", codec->doc},
                                     {"phases", phases},
                                     {"parameters", params},
                                     {"bits_per_value", *bits},
                                     {"exact_ledger", codec->traits.exact_ledger},
                                     {"lossless", codec->traits.lossless},
                                     {"fixed_size", codec->traits.fixed_size},
                                     {"unbiased", codec->traits.unbiased},
                                     {"contraction", contraction(*codec)},
                                     {"needs_feedback", needs_feedback(*codec)},
                                     {"impls", impls}});
    report.text += fmt::format("{:<15} {:>3} {:>11.4f} {:<15} {:<7} {:>9.4g} {:<33} {}\n", codec->name,
                               static_cast<int>(codec->id), *bits, needs_feedback(*codec),
                               codec->traits.exact_ledger ? "exact" : "rounded", contraction(*codec),
                               phase_text, param_list.empty() ? "-" : param_list);
  }
  report.text +=
      "\n"
      "needs feedback  yes: what is not sent must wait in the residual, or training suffers; no: no error on "
      "average\n"
      "ledger          exact: what is sent and what is left give back the gradient bit for bit; rounded: to "
      "one rounding\n"
      "loses           at most, in one round: the part of the squared norm that is not sent; on average, if "
      "drawn\n"
      "Speed and accuracy: docs/codecs.md.\n";
  report.text += "\nFor every codec, after the same colon:\n";
  for (const ParamSpec& p : feedback_params()) {
    report.json["feedback"].push_back(param_json(p));
    report.text += fmt::format("  {:<20} {}\n", param_text(p), p.doc);
  }
  return report;
}

Run declare(CLI::App&) { return list_codecs; }

}  // namespace

const Verb codecs_verb = {
    .name = "codecs",
    .doc = "the codecs: parameters, laws, bits per value (default parameters, 2^20 values)",
    .declare = declare};

}  // namespace tithe::cli
