// SPDX-License-Identifier: Apache-2.0
#pragma once
// A card at work between two interfaces, until it is interrupted.
#include <array>

#include "card_engine.h"
#include "card_ports.h"

namespace tithe::cli {

struct RelayCounts {
  std::array<std::uint64_t, 2> lost = {};  // frames that the interface behind did not take, by way
  double seconds = 0;
  double processor_seconds = 0;
};

// kIo where an interface is gone or the engine has ended. `host` and `wire` are what the card stands between. What goes
// to the wire leaves so many seconds later.
Result<RelayCounts> relay(CardEngine& engine, CardPort& host, CardPort& wire, double delay_seconds);

}  // namespace tithe::cli
