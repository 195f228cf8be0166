// SPDX-License-Identifier: Apache-2.0
// The only file that expands codecs.def: it declares the codecs defined in src/codec/, loads the codecs that are
// programs, and lists both with their ids.
#include "catalogue/codecs.h"

#include <array>

#include "tithe/seam/catalogue.h"

namespace tithe {

#define TITHE_CODEC(name, id) extern const Codec name##_codec;
#define TITHE_CODEC_PROGRAM(name, id)
#include "tithe/codecs.def"
#undef TITHE_CODEC
#undef TITHE_CODEC_PROGRAM

namespace {

constexpr CodecId kIds[] = {
#define TITHE_CODEC(name, id) CodecId{id},
#include "tithe/codecs.def"
#undef TITHE_CODEC
#undef TITHE_CODEC_PROGRAM
};

// Programs are parsed once, at the first call.
const std::array<const Codec*, std::size(kIds)>& all() {
  static const std::array<const Codec*, std::size(kIds)> kAll = {
#define TITHE_CODEC(name, id) &name##_codec,
#define TITHE_CODEC_PROGRAM(name, id) &catalogue::program(#name),
#include "tithe/codecs.def"
#undef TITHE_CODEC
#undef TITHE_CODEC_PROGRAM
  };
  return kAll;
}

}  // namespace

std::span<const Codec* const> all_codecs() { return all(); }

std::span<const CodecId> catalogue::ids() { return kIds; }

}  // namespace tithe
