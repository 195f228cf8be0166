// SPDX-License-Identifier: Apache-2.0
#include "frame/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // for a state on the stack
#include <xxhash.h>

#include <new>

// Null if the loaded library was built without runtime dispatch.
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

auto best_update() {
  static const auto update =
      XXH3_64bits_update_dispatch != nullptr ? XXH3_64bits_update_dispatch : XXH3_64bits_update;
  return update;
}

}  // namespace

std::uint64_t checksum(ByteView header, ByteView payload) {
  return checksum_by(best_update(), header, payload);
}

std::uint64_t checksum_ref(ByteView header, ByteView payload) {
  return checksum_by(XXH3_64bits_update, header, payload);
}

Checksum::Checksum() {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= alignof(Checksum));
  XXH3_64bits_reset(new (state_.data()) XXH3_state_t);
}

void Checksum::add(ByteView bytes) {
  if (!bytes.empty())
    best_update()(reinterpret_cast<XXH3_state_t*>(state_.data()), bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
}

}  // namespace tithe
