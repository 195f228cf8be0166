// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a transport's long messages leave their sender: for those who predict how long messages take.
//
//   stated     each line of transports.def has a `<name>_long_messages` in its folder: between hosts, over TCP where
//              the transport has several ways. `tithe profile` measures whether it is so
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tithe {

enum class Leaves : std::uint8_t {
  kAtOnce,  // whatever their receiver does
  kPosted,  // once word has come that their receive is posted: at once, where that word was there before
  kAsked,   // once their receiver was asked and has answered: a way there and one back
};
inline constexpr Leaves kAllLeaves[] = {Leaves::kAtOnce, Leaves::kPosted, Leaves::kAsked};
std::string_view name(Leaves leaves);  // "at once", "posted", "asked"

struct LongMessages {
  Leaves leave = Leaves::kAtOnce;
  std::size_t above = 0;  // bytes: shorter messages leave at once
  friend bool operator==(const LongMessages&, const LongMessages&) = default;
};

// A transport's long messages, by its name, without options. Those of one that is not in the list leave at once.
LongMessages long_messages_of(std::string_view transport);

#define TITHE_TRANSPORT(name) extern const LongMessages name##_long_messages;
#include "tithe/transports.def"
#undef TITHE_TRANSPORT

}  // namespace tithe
