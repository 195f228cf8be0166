// SPDX-License-Identifier: Apache-2.0
// A number of values near 2^64 is refused at the interface, before any size is computed from it.
#include <gtest/gtest.h>

#include <cstdint>

#include "tithe/connect.h"
#include "tithe/limits.h"
#include "tithe/session.h"
#include "tithe/tithe.h"

namespace tithe {
namespace {

TEST(MostValues, SessionRefusesABucketOfMore) {
  auto session = Session::open(std::move(open_loop(1)[0]), {.codec = "fp32"});
  ASSERT_TRUE(session.ok());
  float one = 1;
  for (const std::size_t n : {kMaxValues + 1, SIZE_MAX / 4 + 1, SIZE_MAX}) {
    const Tensor t{.key = "w", .data = &one, .n = n};
    const Status s = (*session)->sync({&t, 1}).status();
    EXPECT_EQ(s.code(), Code::kInvalid);
    EXPECT_NE(s.what().find("1099511627776"), std::string::npos) << s.what();
  }
  const Tensor together[] = {{.key = "a", .data = &one, .n = kMaxValues - 1},
                             {.key = "b", .data = &one, .n = 2}};
  EXPECT_EQ((*session)->sync(together).status().code(), Code::kInvalid);
  const Tensor fine{.key = "w", .data = &one, .n = 1};
  EXPECT_TRUE((*session)->sync({&fine, 1}).ok());  // the session continues
  EXPECT_TRUE((*session)->commit().ok());
}

TEST(MostValues, TheCAbiRefusesABucketOfMore) {
  tithe_transport* transport = nullptr;
  ASSERT_EQ(tithe_open_loop(1, &transport, nullptr), TITHE_OK);
  tithe_options options;
  tithe_options_init(&options);
  tithe_session* session = nullptr;
  ASSERT_EQ(tithe_session_open(transport, &options, &session, nullptr), TITHE_OK);
  float one = 1;
  const tithe_tensor t = {"w", &one, SIZE_MAX, TITHE_F32, 0, nullptr};
  std::uint64_t ticket = 0;
  tithe_error error;
  EXPECT_EQ(tithe_sync(session, &t, 1, &ticket, &error), TITHE_INVALID);
  EXPECT_NE(std::string_view(error.what).find("1099511627776"), std::string_view::npos);
  tithe_session_close(session);
}

}  // namespace
}  // namespace tithe
