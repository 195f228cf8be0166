// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/nearest.h"
#include "catalogue/codecs.h"
#include "catalogue/programs.h"
#include "codec/params.h"
#include "feedback/policy.h"
#include "lang/library.h"
#include "lang/prepare.h"

namespace tithe {

const Codec& catalogue::program(std::string_view name) { return lang::library_program(name).codec; }

const Codec* find_codec(std::string_view name) {
  for (const Codec* c : all_codecs())
    if (c->name == name) return c;
  return catalogue::find_program([&](const Codec& codec, CodecId) { return codec.name == name; }).codec;
}

const Codec* find_codec(CodecId id) {
  for (std::size_t i = 0; i < all_codecs().size(); ++i)
    if (catalogue::ids()[i] == id) return all_codecs()[i];
  return catalogue::find_program([&](const Codec&, CodecId of) { return of == id; }).codec;
}

namespace {

// True for a codec of codecs.def, false for a loaded program.
bool is_own(const Codec& codec) { return std::ranges::find(all_codecs(), &codec) != all_codecs().end(); }

}  // namespace

CodecId id_of(const Codec& codec) {
  for (std::size_t i = 0; i < all_codecs().size(); ++i)
    if (all_codecs()[i] == &codec) return catalogue::ids()[i];
  return catalogue::find_program([&](const Codec& of, CodecId) { return &of == &codec; }).id;
}

Result<Spec> parse_spec(std::string_view text) {
  const std::string_view codec_name = text.substr(0, text.find(':'));
  Spec spec;
  if (catalogue::is_file(codec_name)) {
    const Result<const lang::LoadedProgram*> program = catalogue::load(std::string(codec_name));
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
  feedback::FeedbackParams feedback_values = feedback::fallbacks();
  const params::Table tables[] = {{spec.codec->params, spec.settings.value},
                                  {feedback_params(), feedback_values}};
  TITHE_TRY(params::parse(*spec.codec, text, tables));
  const Result<FeedbackPolicy> policy = feedback::policy_of(spec.settings, feedback_values);
  if (!policy.ok()) return policy.status();
  spec.feedback = *policy;
  return spec;
}

void prepare(const Spec& spec) {
  if (spec.codec->program != nullptr) lang::prepare(*spec.codec->program, spec.settings);
}

std::string how_it_runs(const Spec& spec) {
  if (spec.codec->program == nullptr) return {};
  if (is_own(*spec.codec) && lang::is_built_in(*spec.codec->program, spec.settings)) return {};
  return lang::how_it_runs(*spec.codec->program, spec.settings);
}

}  // namespace tithe
