// SPDX-License-Identifier: Apache-2.0
#pragma once
// Single numbers of a profile: of the threads and cores of this machine.
namespace tithe::cli {

// From one thread's call until the other, which slept, has it: the processor time of both.
double seconds_to_wake();

// How long a thread that computes keeps a core from one that wakes, where `ranks` of this machine ask at once: while
// all cores are busy, who sleeps wakes that much too late, from nothing to all of it.
double seconds_of_slice(int ranks);

// The kernel's clock, at whose ticks it looks for cores that are free: its coarse time goes in such steps.
double seconds_of_tick();

}  // namespace tithe::cli
