// SPDX-License-Identifier: Apache-2.0
// The one file that codecs.def makes: it declares what each codec's folder defines, makes codecs of the programs, and
// lists both with their ids.
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

// Programs are read once, when the list is first asked for.
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
