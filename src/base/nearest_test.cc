// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

constexpr std::string_view kKnown[] = {"ring", "server", "topk", "qtopk", "ucx"};

TEST(Nearest, finds_the_nearest_name) {
  EXPECT_EQ(nearest_name("rong", kKnown), "ring");
  EXPECT_EQ(nearest_name("sever", kKnown), "server");
  EXPECT_EQ(nearest_name("topc", kKnown), "topk");
  EXPECT_EQ(nearest_name("ucxx", kKnown), "ucx");
  EXPECT_EQ(nearest_name("serv", kKnown), "server");  // by prefix, although "ring" needs as few changes
  EXPECT_EQ(nearest_name("qt", kKnown), "qtopk");
  EXPECT_EQ(nearest_name("uxc", kKnown), "ucx");  // two letters swapped
}

TEST(Nearest, is_empty_if_no_name_is_near) {
  for (const char* wrong : {"", "x", "carrier", "abcd"}) EXPECT_EQ(nearest_name(wrong, kKnown), "") << wrong;
  EXPECT_EQ(nearest_name("ring", {}), "");
}

TEST(Nearest, lists_all_known_names) {
  EXPECT_EQ(suggest("rong", kKnown), "did you mean 'ring'? known: ring, server, topk, qtopk, ucx");
  EXPECT_EQ(suggest("carrier", kKnown), "known: ring, server, topk, qtopk, ucx");
  constexpr std::string_view kWithComma[] = {"SGD 0.5, tuned rate", "AdamW"};
  EXPECT_EQ(suggest("Muon", kWithComma), "known: \"SGD 0.5, tuned rate\", \"AdamW\"");
}

}  // namespace
}  // namespace tithe
