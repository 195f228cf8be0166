// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels on each instruction set that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tithe::harness {

// During its lifetime, run-time dispatch uses only this target; 0: all targets.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

// Each target, and 0 for the default dispatch: some kernels use an instruction set that others do not have.
inline std::vector<std::int64_t> all_targets() {
  std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  targets.push_back(0);
  return targets;
}

inline std::string target_name(std::int64_t target) { return target == 0 ? "best" : hwy::TargetName(target); }

template <typename Use>
void on_every_target(const Use& use) {
  for (const std::int64_t target : all_targets()) {
    const OnlyTarget only(target);
    SCOPED_TRACE(target_name(target));
    use();
  }
}

}  // namespace tithe::harness
