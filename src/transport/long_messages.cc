// SPDX-License-Identifier: Apache-2.0
#include "transport/long_messages.h"

namespace tithe {

std::string_view name(SendProtocol protocol) {
  constexpr std::string_view kNames[] = {"at once", "posted", "asked"};
  return kNames[static_cast<std::size_t>(protocol)];
}

LongMessages long_messages_of(std::string_view transport) {
#define TITHE_TRANSPORT(name) \
  if (transport == #name) return name##_long_messages;
#include "tithe/transports.def"
#undef TITHE_TRANSPORT
  return {};
}

}  // namespace tithe
