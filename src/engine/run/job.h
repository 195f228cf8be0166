// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job is one bucket layout: its unit, and the progress of its current round. Plain data, under the runner's mutex.
// The lane that runs a step uses the unit's memory without the mutex.
#include <memory>
#include <vector>

#include "engine/peers/control.h"
#include "engine/peers/peer.h"
#include "engine/program/unit.h"

namespace tithe::engine {

// The names of a job's trace events. The recorder owns the texts.
struct Labels {
  struct PartNames {
    std::string_view key, codec;
  };
  std::vector<PartNames> parts;
  std::uint64_t bytes = 0;  // of the bucket's gradients
};

struct Job {
  enum class State : std::uint8_t { kIdle, kAwaitsCards, kRuns, kDone };
  std::unique_ptr<Unit> unit;        // null in a simulation that has no values
  const Program* program = nullptr;  // owned by the unit, or by the simulator
  Card card;
  State state = State::kIdle;
  std::uint32_t number = 0;
  std::size_t order = 0;                // rank of its start time among active buckets
  bool shown = false;                   // its card was queued for sending
  bool agreed = false;                  // all ranks have sent the same card
  int awaited = 0;                      // waiting callers
  std::uint64_t ticket = 0;             // the ticket of its round until its end is reported; 0: none
  Instant began;                        // start of the round
  std::vector<int> waits;               // by step: unfinished steps that it waits for
  std::vector<std::int64_t> posted_ns;  // by step: time at which the transport got it; 0: not in flight
  std::vector<std::int64_t> ready_ns;   // by step: time at which it became ready, if traced
  std::size_t unfinished = 0;           // steps
  std::vector<std::size_t> left;        // unfinished steps by part
  std::vector<std::size_t> missing;     // by group of steps (step_groups.h): steps that are not ready
  std::size_t over = 0;                 // parts at the front that are finished
  std::size_t begun_parts = 0;
  Arena card_frame;
  std::size_t card_bytes = 0;
  Labels labels;

  // The steps that run together with a step.
  std::span<const int> together(const int& s) const {
    return unit == nullptr ? std::span(&s, 1) : unit->together(s);
  }
  const Step& step(int s) const { return program->steps[static_cast<std::size_t>(s)]; }
};

}  // namespace tithe::engine
