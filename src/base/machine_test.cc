// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/machine.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cctype>
#include <cstdlib>
#include <string>

namespace tithe {
namespace {

std::string lower(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

TEST(Target, FollowsTheEnvironment) {
  ASSERT_TRUE(check_environment().ok()) << check_environment().what();
  const char* requested = std::getenv("TITHE_TARGET");
  EXPECT_EQ(target(), requested != nullptr && *requested != '\0' ? lower(requested) : targets().front());
}

TEST(Target, UnknownNameIsRefusedWithTheList) {
  const std::string before = target();
  const Status refused = use_target("avx9");
  EXPECT_EQ(refused.code(), Code::kInvalid);
  for (const std::string& name : targets())
    EXPECT_NE(refused.what().find(name), std::string::npos) << refused.what();
  EXPECT_EQ(target(), before);
}

// Highway then uses the best of the target and all lesser ones.
TEST(Target, EachTargetLimitsTheKernels) {
  const std::string before = target();
  for (const std::string& name : targets()) {
    ASSERT_TRUE(use_target(name).ok());
    EXPECT_EQ(target(), name);
    const std::int64_t remaining = hwy::SupportedTargets();
    EXPECT_EQ(lower(hwy::TargetName(remaining & -remaining)), name);
  }
  ASSERT_TRUE(use_target(before).ok());
}

}  // namespace
}  // namespace tithe
