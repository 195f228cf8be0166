// SPDX-License-Identifier: Apache-2.0
// The one file that codecs.def makes: it declares what each codec's folder defines, and lists them with their ids.
// Beside them stand the codecs that were loaded.
#include <atomic>

#include "codec/loaded_codecs.h"
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

// Loaded codecs are pushed in front and stay, so that whoever walks the list needs no lock.
struct LoadedCodec {
  const Codec* codec;
  CodecId id;
  const LoadedCodec* next;
};
std::atomic<const LoadedCodec*> loaded{nullptr};

template <typename Is>
const LoadedCodec* find_loaded(const Is& is) {
  for (const LoadedCodec* l = loaded.load(std::memory_order_acquire); l != nullptr; l = l->next)
    if (is(*l)) return l;
  return nullptr;
}

}  // namespace

void add_loaded_codec(const Codec& codec, CodecId id) {
  auto* added = new LoadedCodec{&codec, id, loaded.load(std::memory_order_acquire)};
  while (!loaded.compare_exchange_weak(added->next, added, std::memory_order_acq_rel)) {
  }
}

std::string_view name(Law law) {
  static constexpr std::string_view kNames[] = {"decode", "sum", "max", "concat", "leader"};
  return kNames[static_cast<std::size_t>(law)];
}

std::span<const Codec* const> all_codecs() { return kAll; }

const Codec* find_codec(std::string_view name) {
  for (const Codec* c : all_codecs())
    if (c->name == name) return c;
  const LoadedCodec* found = find_loaded([&](const LoadedCodec& l) { return l.codec->name == name; });
  return found == nullptr ? nullptr : found->codec;
}

const Codec* find_codec(CodecId id) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kIds[i] == id) return kAll[i];
  const LoadedCodec* found = find_loaded([&](const LoadedCodec& l) { return l.id == id; });
  return found == nullptr ? nullptr : found->codec;
}

CodecId id_of(const Codec& codec) {
  for (std::size_t i = 0; i < std::size(kAll); ++i)
    if (kAll[i] == &codec) return kIds[i];
  const LoadedCodec* found = find_loaded([&](const LoadedCodec& l) { return l.codec == &codec; });
  return found == nullptr ? CodecId{} : found->id;
}

Settings defaults(const Codec& codec) {
  TITHE_ASSERT(codec.params.size() <= kMaxParams);
  Settings s;
  for (std::size_t i = 0; i < codec.params.size(); ++i) s.value[i] = codec.params[i].fallback;
  return s;
}

}  // namespace tithe
