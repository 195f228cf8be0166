// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine behind `tithe card`: the C++ twin, or the Verilated card itself in a process of its own.
#include <array>
#include <memory>
#include <string>

#include "card/network_card.h"
#include "tithe/status.h"

namespace tithe::cli {

class CardEngine {
 public:
  virtual ~CardEngine() = default;
  // The frame that leaves for `direction`: gone with the next call; empty where the frame was dropped.
  virtual Result<ByteView> pass(card::Direction direction, ByteView frame) = 0;
  virtual Result<std::array<card::Counters, 2>> counters() = 0;  // by way
  virtual std::uint64_t cycles() const = 0;                      // after counters(); 0: it has no clock
};

std::unique_ptr<CardEngine> card_model(const card::Config& config);

// Starts `program`, a bench of rtl/ (`make -C rtl engine`). kIo where it cannot be started or does not answer as one.
Result<std::unique_ptr<CardEngine>> card_rtl(const card::Config& config, const std::string& program);

}  // namespace tithe::cli
