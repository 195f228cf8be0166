// SPDX-License-Identifier: Apache-2.0
// A spec is a codec with its settings, and the carry's policy beside them.
#include "tithe/spec.h"

#include <fmt/format.h>

#include <vector>

#include "base/nearest.h"
#include "carry/policy.h"
#include "codec/params.h"
#include "lang/loader.h"
#include "lang/prepare.h"

namespace tithe {

Result<Spec> parse_spec(std::string_view text) {
  const std::string_view codec_name = text.substr(0, text.find(':'));
  Spec spec;
  if (lang::is_file(codec_name)) {
    const Result<const lang::LoadedProgram*> program = lang::load(std::string(codec_name));
    if (!program.ok()) return program.status();
    spec.codec = &(*program)->codec;
  } else {
    spec.codec = find_codec(codec_name);
  }
  if (spec.codec == nullptr) {
    std::vector<std::string_view> names;
    for (const Codec* c : all_codecs()) names.push_back(c->name);
    return Status(Code::kInvalid,
                  fmt::format("unknown codec '{}': {}", codec_name, suggest(codec_name, names)));
  }
  spec.settings = defaults(*spec.codec);
  carry::Values told = carry::fallbacks();
  const params::Table tables[] = {{spec.codec->params, spec.settings.value}, {feedback_params(), told}};
  TITHE_TRY(params::parse(*spec.codec, text, tables));
  const Result<FeedbackPolicy> policy = carry::policy_of(*spec.codec, told);
  if (!policy.ok()) return policy.status();
  spec.feedback = *policy;
  if (const lang::LoadedProgram* program = lang::program_of(*spec.codec))
    lang::prepare(*program, spec.settings);
  return spec;
}

std::string to_string(const Spec& spec) {
  std::string out(spec.codec->name);
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i)
    params::append(out, spec.codec->params[i], spec.settings[i], spec.codec->params[i].fallback);
  carry::append(out, *spec.codec, spec.feedback);
  return out;
}

}  // namespace tithe
