// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job is one bucket layout, over and over: its unit, and how far this round of it has come. Plain data, under the
// runner's mutex; the unit's own memory belongs to whoever runs its steps.
#include <memory>
#include <vector>

#include "engine/control.h"
#include "engine/peer.h"
#include "engine/unit.h"

namespace tithe::engine {

struct Job {
  enum class State : std::uint8_t { kIdle, kAwaitsCards, kRuns, kDone };
  std::unique_ptr<Unit> unit;
  Card card;
  State state = State::kIdle;
  std::uint32_t number = 0;
  bool agreed = false;                  // all ranks have shown the same card
  Instant began;                        // the round
  std::vector<int> waits;               // by step: steps that it still waits for
  std::vector<std::int64_t> posted_ns;  // by step: in flight since; 0 otherwise
  std::size_t unfinished = 0;           // steps
  Arena card_frame;
  std::size_t card_bytes = 0;

  const Step& step(int s) const { return unit->program().steps[static_cast<std::size_t>(s)]; }
};

}  // namespace tithe::engine
