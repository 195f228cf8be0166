// SPDX-License-Identifier: Apache-2.0
// The one file that codecs.def makes: it declares what each codec's folder defines, and lists them with their ids.
#include "tithe/codec.h"

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

std::string_view name(Law law) {
  static constexpr std::string_view kNames[] = {"decode", "sum", "max", "concat", "leader"};
  return kNames[static_cast<std::size_t>(law)];
}

std::span<const Codec* const> all_codecs() { return kAll; }

const Codec* find_codec(std::string_view name) {
  for (const Codec* c : all_codecs())
    if (c->name == name) return c;
  return nullptr;
}

const Codec* find_codec(CodecId id) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kIds[i] == id) return kAll[i];
  return nullptr;
}

CodecId id_of(const Codec& codec) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kAll[i] == &codec) return kIds[i];
  return {};
}

Settings defaults(const Codec& codec) {
  TITHE_ASSERT(codec.params.size() <= kMaxParams);
  Settings s;
  for (std::size_t i = 0; i < codec.params.size(); ++i) s.value[i] = codec.params[i].fallback;
  return s;
}

}  // namespace tithe
