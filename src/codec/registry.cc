// SPDX-License-Identifier: Apache-2.0
#include "codec/registry.h"

#include <cstdlib>

namespace tithe {

std::string_view name(Law law) {
  static constexpr std::string_view kNames[] = {"decode", "sum", "max", "concat", "leader"};
  return kNames[static_cast<std::size_t>(law)];
}

std::span<const Codec* const> all_codecs() {
  static constexpr const Codec* kAll[] = {
#define TITHE_CODEC(name, id) &name##_codec,
#include "tithe/codecs.def"
#undef TITHE_CODEC
  };
  return kAll;
}

const Codec* find_codec(std::string_view name) {
  for (const Codec* c : all_codecs())
    if (c->name == name) return c;
  return nullptr;
}

const Codec* find_codec(CodecId id) {
  for (const Codec* c : all_codecs())
    if (c->id == id) return c;
  return nullptr;
}

Settings defaults(const Codec& codec) {
  TITHE_ASSERT(codec.params.size() <= kMaxParams);
  Settings s;
  for (std::size_t i = 0; i < codec.params.size(); ++i) s.value[i] = codec.params[i].fallback;
  return s;
}

}  // namespace tithe
