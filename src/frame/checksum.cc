// SPDX-License-Identifier: Apache-2.0
#include "frame/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // the state on the stack
#include <xxhash.h>

// Null where the library that this process has found was built without it.
extern "C" [[gnu::weak]] XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t* state, const void* input,
                                                                   std::size_t bytes);

namespace tithe {
namespace {

template <typename Update>
std::uint64_t checksum_by(Update update, ByteView header, ByteView payload) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  update(&state, header.data(), header.size());
  if (!payload.empty()) update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace

std::uint64_t checksum(ByteView header, ByteView payload) {
  static const auto update =
      XXH3_64bits_update_dispatch != nullptr ? XXH3_64bits_update_dispatch : XXH3_64bits_update;
  return checksum_by(update, header, payload);
}

std::uint64_t checksum_ref(ByteView header, ByteView payload) {
  return checksum_by(XXH3_64bits_update, header, payload);
}

}  // namespace tithe
