// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job is one bucket layout, over and over: its unit, and how far this round of it has come. Plain data, under the
// runner's mutex; the unit's own memory belongs to whoever runs its steps.
#include <memory>
#include <vector>

#include "engine/peers/control.h"
#include "engine/peers/peer.h"
#include "engine/program/unit.h"

namespace tithe::engine {

// The trace's names for a job's events; the texts are the recorder's.
struct Labels {
  struct PartNames {
    std::string_view key, codec;
  };
  std::vector<PartNames> parts;
  std::uint64_t bytes = 0;  // of the bucket's gradients
};

struct Job {
  enum class State : std::uint8_t { kIdle, kAwaitsCards, kRuns, kDone };
  std::unique_ptr<Unit> unit;        // none where time alone is simulated
  const Program* program = nullptr;  // the unit's
  Card card;
  State state = State::kIdle;
  std::uint32_t number = 0;
  std::size_t order = 0;                // among the buckets under way: which came first
  bool shown = false;                   // its card was handed over to be shown
  bool agreed = false;                  // all ranks have shown the same card
  int awaited = 0;                      // callers that wait for it
  std::uint64_t untold = 0;             // the ticket of its round, whose end nobody was told yet; 0: none
  Instant began;                        // the round
  std::vector<int> waits;               // by step: steps that it still waits for
  std::vector<std::int64_t> posted_ns;  // by step: in flight since; 0 otherwise
  std::vector<std::int64_t> ready_ns;   // by step: all that it waits for has run since, while it is traced
  std::size_t unfinished = 0;           // steps
  std::vector<std::size_t> left;        // of them, by part
  std::size_t over = 0;                 // so many parts, the first ones, have none left
  std::size_t begun_parts = 0;
  Arena card_frame;
  std::size_t card_bytes = 0;
  Labels labels;

  const Step& step(int s) const { return program->steps[static_cast<std::size_t>(s)]; }
};

}  // namespace tithe::engine
