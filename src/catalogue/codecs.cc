// SPDX-License-Identifier: Apache-2.0
// The one file that codecs.def makes: it declares what each codec's folder defines, and lists them with their ids.
// Programs that were read stand beside them.
#include "catalogue/programs.h"
#include "tithe/catalogue.h"

namespace tithe {

#define TITHE_CODEC(name, id) extern const Codec name##_codec;
#include "tithe/codecs.def"
#undef TITHE_CODEC

namespace {

constexpr const Codec* kAll[] = {
#define TITHE_CODEC(name, id) &name##_codec,
#include "tithe/codecs.def"
#undef TITHE_CODEC
};

constexpr CodecId kIds[] = {
#define TITHE_CODEC(name, id) CodecId{id},
#include "tithe/codecs.def"
#undef TITHE_CODEC
};

}  // namespace

std::span<const Codec* const> all_codecs() { return kAll; }

const Codec* find_codec(std::string_view name) {
  for (const Codec* c : all_codecs())
    if (c->name == name) return c;
  return catalogue::find_program([&](const Codec& codec, CodecId) { return codec.name == name; }).codec;
}

const Codec* find_codec(CodecId id) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kIds[i] == id) return kAll[i];
  return catalogue::find_program([&](const Codec&, CodecId of) { return of == id; }).codec;
}

CodecId id_of(const Codec& codec) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kAll[i] == &codec) return kIds[i];
  return catalogue::find_program([&](const Codec& of, CodecId) { return &of == &codec; }).id;
}

}  // namespace tithe
