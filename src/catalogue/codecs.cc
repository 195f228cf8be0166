// SPDX-License-Identifier: Apache-2.0
// The one file that codecs.def makes: it declares what each codec's folder defines, and lists them with their ids.
#include "catalogue/codecs.h"

#include "tithe/seam/catalogue.h"

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

std::span<const CodecId> catalogue::ids() { return kIds; }

}  // namespace tithe
