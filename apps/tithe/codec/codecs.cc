// SPDX-License-Identifier: Apache-2.0
// tithe codecs: the available codecs, and the size of their payloads.
#include <fmt/format.h>

#include <algorithm>

#include "codec/typical.h"
#include "codec_advice.h"
#include "encode_once.h"
#include "progress.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/graph.h"
#include "verb.h"

namespace tithe::cli {
namespace {

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

// For a codec with one phase, from the sample's payload; otherwise from the bounds of all phases.
Result<double> bits_per_value(const Spec& spec, std::span<const float> sample) {
  const Codec& codec = *spec.codec;
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

// Whether the codec needs error feedback for training to work.
const char* needs_feedback(const Codec& codec) {
  if (codec.traits.lossless) return "nothing is lost";
  if (codec.traits.unbiased) return "no";
  return contraction(codec) < 1e-3 ? "hardly" : "yes";
}

// Wraps text to 100 columns; continuation lines are indented to the start of the text.
std::string wrapped(std::string_view label, std::string_view text) {
  constexpr std::size_t kColumns = 100, kIndent = 14;
  std::string out = fmt::format("{:<{}}", label, kIndent);
  std::size_t at = kIndent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (at > kIndent && at + 1 + word.size() > kColumns) {
      out += '\n' + std::string(kIndent, ' ');
      at = kIndent;
    } else if (at > kIndent) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return out + '\n';
}

std::string phases_text(const Codec& codec) {
  std::string text;
  for (const Phase& phase : codec.phases) {
    std::string laws;
    for (const Law law : phase.laws) laws += fmt::format("{}{}", laws.empty() ? "" : ",", name(law));
    text += fmt::format("{}{} ({})", text.empty() ? "" : " ", phase.name, laws);
  }
  return text;
}

Json studied_json(const Spec& spec) {
  Json json = Json::object();
  for (const auto& [optimizer, verdict] : studied(spec).by_optimizer) json[optimizer] = verdict;
  return json;
}

std::string studied_text(const Spec& spec) {
  const StudyFindings found = studied(spec);
  std::string text;
  for (const auto& [optimizer, verdict] : found.by_optimizer)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", optimizer,
                        verdict.starts_with("no: ") ? fmt::format("no, {}", verdict.substr(4)) : verdict);
  if (text.empty()) return "not in the study of optimizers: compare with fp32";
  return found.of_defaults ? fmt::format("at the defaults of {}: {}", spec.codec->name, text) : text;
}

Json codec_json(const Spec& spec, double bits) {
  const Codec& codec = *spec.codec;
  Json phases = Json::array();
  for (const Phase& phase : codec.phases) {
    Json laws = Json::array();
    for (const Law law : phase.laws) laws.push_back(name(law));
    phases.push_back({{"name", phase.name}, {"laws", laws}});
  }
  Json params = Json::array();
  for (const ParamSpec& p : codec.params) params.push_back(param_json(p));
  Json impls = Json::array();
  for (const Impl& impl : codec.impls)
    if (impl.usable(this_machine())) impls.push_back(impl.name);
  return {{"name", codec.name},
          {"id", static_cast<int>(id_of(codec))},
          {"doc", codec.doc},
          {"when", when_to_use(spec, bits)},
          {"studied", studied_json(spec)},
          {"phases", phases},
          {"parameters", params},
          {"bits_per_value", bits},
          {"exact_ledger", codec.traits.exact_ledger},
          {"lossless", codec.traits.lossless},
          {"fixed_size", codec.traits.fixed_size},
          {"unbiased", codec.traits.unbiased},
          {"contraction", contraction(codec)},
          {"needs_feedback", needs_feedback(codec)},
          {"impls", impls}};
}

std::string param_line(const ParamSpec& p) {
  std::string may_be = fmt::format("{} .. {}", p.low, p.high);
  if (!p.choices.empty()) {
    may_be.clear();
    for (const std::string_view choice : p.choices) (may_be += may_be.empty() ? "" : "|") += choice;
  }
  return fmt::format("  {:<22} {}\n  {:<22} {}\n", param_text(p), p.doc, "", may_be);
}

Result<Report> one_codec(const std::string& text) {
  const Result<Spec> spec = parse_spec(text);
  if (!spec.ok()) return spec.status();
  const Codec& codec = *spec->codec;
  const Result<double> bits = bits_per_value(*spec, bell_values(kSample, 1));
  if (!bits.ok()) return bits.status();
  Report report;
  report.json = codec_json(*spec, *bits);
  report.json["spec"] = to_string(*spec);
  // Bytes of a payload for kSample gradients: the maximum, and the simulator's expectation (codec/typical.h).
  double most = 0, expected = 0;
  for (std::size_t k = 0; k < codec.phases.size(); ++k) {
    most += static_cast<double>(codec.phases[k].bound(spec->settings, kSample));
    expected += static_cast<double>(codec::expected_bytes(codec, k, spec->settings, kSample));
  }
  report.json["most_bits"] = 8 * most / static_cast<double>(kSample);
  report.json["expected_bits"] = 8 * expected / static_cast<double>(kSample);
  report.json["contraction"] = contraction(codec, spec->settings);
  const char* feedback = codec.traits.lossless   ? "no residual exists"
                         : codec.traits.unbiased ? "no error on average"
                                                 : "unsent values must stay in the residual";
  report.text = fmt::format("{}: {}\n\n", codec.name, codec.doc) +
                wrapped("when", when_to_use(*spec, *bits)) + wrapped("like fp32", studied_text(*spec)) +
                wrapped("bits/value",
                        fmt::format("{:.4f}, of 2^20 bell-shaped values, as {}", *bits, to_string(*spec))) +
                wrapped("feedback", fmt::format("{}: {}", needs_feedback(codec), feedback)) +
                wrapped("ledger", codec.traits.exact_ledger
                                      ? "exact: payload plus residual equals the gradient bit for bit"
                                      : "rounded: to one rounding") +
                wrapped("loses", fmt::format("at most {:.4g} of the squared norm in one round",
                                             contraction(codec, spec->settings))) +
                wrapped("phases, laws", phases_text(codec)) + "strategies   ";
  Json strategies = Json::array();
  for (const Strategy* strategy : all_strategies()) {
    const bool runs = std::all_of(codec.phases.begin(), codec.phases.end(), [&](const Phase& phase) {
      return std::any_of(strategy->laws.begin(), strategy->laws.end(), [&](Law law) {
        return std::find(phase.laws.begin(), phase.laws.end(), law) != phase.laws.end();
      });
    });
    if (!runs) continue;
    strategies.push_back(strategy->name);
    report.text += fmt::format(" {}", strategy->name);
  }
  report.json["strategies"] = strategies;
  report.text +=
      codec.params.empty() ? "\n\nno parameters of its own\n" : "\n\nparameters, behind a colon:\n";
  for (const ParamSpec& p : codec.params) report.text += param_line(p);
  report.text += fmt::format(
      "and those of every codec (`tithe codecs`).\nMeasured: docs/reference/codecs.md, "
      "docs/start/choosing.md.\n"
      "Example: {}\n",
      codec.params.empty() ? fmt::format("{}:feedback=none", codec.name)
                           : fmt::format("{}:{}", codec.name, param_text(codec.params.front())));
  return report;
}

// Four decimals; values below 0.0001 or above 100 are shown as a bound.
std::string share_text(double share) {
  if (share > 100) return "> 100";
  return share > 0 && share < 1e-4 ? "< 0.0001" : fmt::format("{:.4f}", share);
}

Result<Report> list_codecs() {
  const std::vector<float> sample = bell_values(kSample, 1);
  Report report;
  report.json = {{"codecs", Json::array()}, {"feedback", Json::array()}};
  report.text = fmt::format("{:<15} {:>10} {:<15} {:<7} {:>9} {}\n", "name", "bits/value", "needs feedback",
                            "ledger", "loses", "phases (laws)");
  for (const Codec* codec : all_codecs()) {
    const Spec spec{codec, defaults(*codec), {}};
    const Result<double> bits = bits_per_value(spec, sample);
    if (!bits.ok()) return bits.status();
    report.json["codecs"].push_back(codec_json(spec, *bits));
    report.text += fmt::format("{:<15} {:>10.4f} {:<15} {:<7} {:>9} {}\n", codec->name, *bits,
                               needs_feedback(*codec), codec->traits.exact_ledger ? "exact" : "rounded",
                               share_text(contraction(*codec)), phases_text(*codec));
    progress("codecs", report.json["codecs"].size(), all_codecs().size());
  }
  report.text +=
      "\n"
      "needs feedback  yes: unsent values must stay in the residual, or training suffers; no: no error\n"
      "                on average\n"
      "ledger          exact: payload plus residual equals the gradient bit for bit; rounded:\n"
      "                to one rounding\n"
      "loses           at most, in one round: the part of the squared norm that is not sent; on average,\n"
      "                if drawn\n"
      "`tithe codecs NAME`: parameters, and when to use it. Speed and accuracy: docs/reference/codecs.md.\n";
  report.text += "\nFor every codec, behind the colon with its own parameters:\n";
  for (const ParamSpec& p : feedback_params()) {
    report.json["feedback"].push_back(param_json(p));
    report.text += fmt::format("  {:<17} {}\n", param_text(p), p.doc);
  }
  return report;
}

Run declare_codecs(CLI::App& app) {
  auto codec = std::make_shared<std::string>();
  app.add_option("NAME", *codec, "a codec, optionally with parameters: print its description");
  return [codec] { return codec->empty() ? list_codecs() : one_codec(*codec); };
}

}  // namespace

const Verb codecs_verb = {
    .name = "codecs",
    .doc = "list the codecs with bits per value and laws; with NAME, its parameters and when to use it",
    .declare = declare_codecs};

}  // namespace tithe::cli
