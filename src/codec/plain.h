// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs whose payload is the taken values as they lie in memory. So values can be used as their payload where they
// lie, and any run of values in a payload is the payload of these.
#include <bit>

#include "codec/fp32/fp32.h"

namespace tithe::codec {

inline bool is_plain(const Codec& codec) {
  return &codec == &fp32_codec && std::endian::native == std::endian::little;
}

}  // namespace tithe::codec
