// SPDX-License-Identifier: Apache-2.0
#pragma once
// Single numbers of a profile: threads and cores of this machine, and what links carry while all ranks send.
#include <chrono>
#include <span>

#include "tithe/transport.h"

namespace tithe::cli {

inline constexpr Channel kProbe = 1;
inline constexpr double kPatience = 30;  // seconds without a message

double seconds_since(std::chrono::steady_clock::time_point begin);

// From one thread's call until the other, which slept, has it: the processor time of both.
double seconds_to_wake();

// How long a thread that computes keeps a core from one that wakes, where `ranks` of this machine ask at once: while
// all cores are busy, who sleeps wakes that much too late, from nothing to all of it.
double seconds_of_slice(int ranks);

// The kernel's clock, at whose ticks it looks for cores that are free: its coarse time goes in such steps.
double seconds_of_tick();

// Bytes per second that this rank receives, while it sends as many: so many messages from each and to each. Two to
// each are under way, so that none waits for the one before; or, in step, one, and the next when it and the one that
// comes from there are through, as ranks do that wait for each other's results. The first ones fill what links let
// through at once, and do not count. 0: it failed.
double flood(Transport& transport, std::span<const Rank> to, std::span<const Rank> from, ByteView message,
             std::size_t messages, bool in_step);

}  // namespace tithe::cli
