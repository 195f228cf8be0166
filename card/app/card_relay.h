// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a card between two interfaces until an interrupt.
#include <array>

#include "card_engine.h"
#include "card_ports.h"

namespace tithe::cli {

struct RelayCounts {
  std::array<std::uint64_t, 2> lost = {};  // frames that the output interface did not accept, by direction
  double seconds = 0;
  double processor_seconds = 0;
};

// kIo if an interface has disappeared or the engine has ended. The card is between `host` and `wire`; frames to the
// wire leave `delay_seconds` later.
Result<RelayCounts> relay(CardEngine& engine, CardPort& host, CardPort& wire, double delay_seconds);

}  // namespace tithe::cli
