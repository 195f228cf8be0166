// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a transport puts a long message on the link, for code that predicts how long messages take.
//
// Each line of transports.def has a constant `<name>_long_messages` in its folder. The constant holds between hosts;
// for a transport that can use several networks (UCX), it holds over TCP. `tithe profile` measures whether it is true.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tithe {

enum class SendProtocol : std::uint8_t {
  kEager,  // without waiting for the receiver
  // after the sender is informed that the receive is posted; immediately if that information came earlier
  kPosted,
  kRendezvous,  // after the sender has asked the receiver and got the answer: one round trip
};
inline constexpr SendProtocol kSendProtocols[] = {SendProtocol::kEager, SendProtocol::kPosted,
                                                  SendProtocol::kRendezvous};
std::string_view name(SendProtocol protocol);  // "at once", "posted", "asked"

struct LongMessages {
  SendProtocol protocol = SendProtocol::kEager;
  std::size_t above = 0;  // bytes: shorter messages leave at once
  friend bool operator==(const LongMessages&, const LongMessages&) = default;
};

// A transport's long messages, by its name without options. A transport that is not in the list sends at once.
LongMessages long_messages_of(std::string_view transport);

#define TITHE_TRANSPORT(name) extern const LongMessages name##_long_messages;
#include "tithe/transports.def"
#undef TITHE_TRANSPORT

}  // namespace tithe
