// SPDX-License-Identifier: Apache-2.0
#include "tithe/hosts.h"

#include <gtest/gtest.h>

#include "tithe/connect.h"

namespace tithe {
namespace {

Hosts of(std::initializer_list<std::uint64_t> numbers) {
  return Hosts::of({numbers.begin(), numbers.size()});
}

TEST(Hosts, numbered) {
  EXPECT_EQ(of({9, 9, 4, 4}), of({0, 0, 1, 1}));
  EXPECT_NE(of({0, 0, 1, 1}), of({0, 1, 0, 1}));
  EXPECT_EQ(of({7, 5, 7, 5}).of_rank(3), 1);
  EXPECT_EQ(of({7, 5, 7, 5}).ranks(4), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(of({7, 7, 7}).count(3), 1);
}

TEST(Hosts, alone) {
  EXPECT_EQ(of({3, 1, 2}), Hosts{});
  EXPECT_TRUE(of({3, 1, 2}).alone());
  EXPECT_EQ(of({}), Hosts{});
  EXPECT_EQ(Hosts{}.count(5), 5);
  EXPECT_EQ(Hosts{}.of_rank(3), 3);
  EXPECT_EQ(Hosts{}.ranks(2), (std::vector<std::vector<int>>{{0}, {1}}));
}

TEST(Hosts, text) {
  for (const auto& [hosts, text] :
       {std::pair{of({0, 0, 1, 1, 2, 2}), "3x2"}, std::pair{of({0, 0, 0, 1}), "3+1"},
        std::pair{of({0, 1, 0, 1}), "0,1,0,1"}, std::pair{of({0, 0}), "1x2"}, std::pair{Hosts{}, "4x1"}}) {
    const std::string shown(text);
    const int world = hosts == Hosts{} ? 4 : hosts == of({0, 0}) ? 2 : shown == "3x2" ? 6 : 4;
    EXPECT_EQ(hosts.text(world), shown);
    const Result<Hosts> back = Hosts::parse(shown, world);
    ASSERT_TRUE(back.ok()) << back.status().what();
    EXPECT_EQ(*back, hosts) << shown;
  }
  EXPECT_EQ(*Hosts::parse("", 3), Hosts{});
  EXPECT_EQ(*Hosts::parse("4", 4), of({0, 0, 0, 0}));
}

TEST(Hosts, refuses_texts_with_other_ranks) {
  for (const char* text : {"2x2", "3+3", "0,0,1", "x", "2x", "2x2x1", "3+", "+3", "3+0", "a", "-1+5", " 4x1",
                           "4x1 ", "0,0,1,", "99999999999", "4294967295x4294967295", "0x5", "5x0"}) {
    const Status s = Hosts::parse(text, 5).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << text;
    EXPECT_NE(s.what().find("hosts '"), std::string::npos) << s.what();
    EXPECT_NE(s.what().find("5 ranks"), std::string::npos) << s.what();
  }
}

TEST(Hosts, loop_accepts_hosts) {
  for (const auto& t : open_loop(4, {}, *Hosts::parse("2x2", 4))) EXPECT_EQ(t->hosts().text(4), "2x2");
  for (const auto& t : open_loop(4)) EXPECT_TRUE(t->hosts().alone());
}

}  // namespace
}  // namespace tithe
