// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of device parts that run together, as one batch of a GPU (engine/device/device_parts.h). A group has at
// most one step of each part: the same step of the same graph. It becomes ready when all its steps are ready.
//
// Groups cannot deadlock. All ranks have the same graph for parts of one shape, and begin parts in the same order
// (program.h, "Window"). Replace each step by the class of all parts with this shape that begin at the same time. A
// step waits only for steps of its own part, and for the end of parts that begin earlier, so the graph of these
// classes is as free of cycles as the graph of one part. A group is a subset of a class, so it adds no cycle.
#include <functional>
#include <vector>

#include "engine/program/program.h"

namespace tithe::engine {

struct StepGroups {
  std::vector<int> of;                  // by step: its group, or -1; empty: there is no group
  std::vector<std::vector<int>> steps;  // by group
  int at(int step) const { return of.empty() ? -1 : of[static_cast<std::size_t>(step)]; }
};

// on_device: true for a part that a GPU takes.
StepGroups group_steps(const Program& program, const std::function<bool(int part)>& on_device);

}  // namespace tithe::engine
