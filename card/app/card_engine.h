// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine of `tithe card`: the C++ model, or the Verilated card in a process of its own.
#include <array>
#include <memory>
#include <string>

#include "card/model/network_card.h"
#include "tithe/status.h"

namespace tithe::cli {

class CardEngine {
 public:
  virtual ~CardEngine() = default;
  // Returns the frame that leaves in `direction`, valid until the next call; empty if the card dropped it.
  virtual Result<ByteView> pass(card::Direction direction, ByteView frame) = 0;
  virtual Result<std::array<card::Counters, 2>> counters() = 0;  // by direction
  virtual std::uint64_t cycles() const = 0;  // as of the last counters(); 0: the model has no clock
};

std::unique_ptr<CardEngine> card_model(const card::Config& config);

// Starts `program`, a bench of card/rtl/ (`make -C card/rtl engine`). kIo if it cannot be started or does not answer
// like one.
Result<std::unique_ptr<CardEngine>> card_rtl(const card::Config& config, const std::string& program);

}  // namespace tithe::cli
