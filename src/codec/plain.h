// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs whose payload is the byte image of the taken values. The values can be sent from their own memory, and any
// run of values in a payload is itself a payload.
#include <bit>

#include "codec/fp32/fp32.h"

namespace tithe::codec {

inline bool is_plain(const Codec& codec) {
  return &codec == &fp32_codec && std::endian::native == std::endian::little;
}

}  // namespace tithe::codec
