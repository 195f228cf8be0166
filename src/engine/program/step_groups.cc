// SPDX-License-Identifier: Apache-2.0
#include "engine/program/step_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tithe::engine {
namespace {

// The other steps check frames, join payloads that were encoded before, or only record merged frames.
bool uses_device(const Step& step, const PartLayout& layout) {
  switch (step.kind) {
    case StepKind::kLoad:
    case StepKind::kOwn:
    case StepKind::kStore:
      return true;
    case StepKind::kEncode:
      return step.direct;
    case StepKind::kMerge:
      return layout.laws[step.phase] == Law::kDecode;
    case StepKind::kSend:
    case StepKind::kRecv:
    case StepKind::kCheck:
      break;
  }
  return false;
}

}  // namespace

StepGroups group_steps(const Program& program, const std::function<bool(int part)>& on_device) {
  StepGroups groups;
  // By shape, time of begin, and step of the part.
  std::map<std::tuple<int, int, std::size_t>, std::size_t> known;
  std::size_t first = 0;
  int after = -1;
  for (std::size_t p = 0; p < program.parts.size(); ++p) {
    const PartLayout& layout = program.parts[p];
    after = std::max(after, layout.begins_after);  // parts begin in order
    for (std::size_t k = 0; k < layout.steps && on_device(static_cast<int>(p)); ++k) {
      if (!uses_device(program.steps[first + k], layout)) continue;
      const std::size_t group =
          known.try_emplace({layout.shape, after, k}, groups.steps.size()).first->second;
      if (group == groups.steps.size()) groups.steps.emplace_back();
      groups.of.resize(program.steps.size(), -1);
      groups.of[first + k] = static_cast<int>(group);
      groups.steps[group].push_back(static_cast<int>(first + k));
    }
    first += layout.steps;
  }
  return groups;
}

}  // namespace tithe::engine
