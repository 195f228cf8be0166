// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/hello.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tithe/connect.h"

namespace tithe::ucx {
namespace {

const Hello kRank2{.rank = 2, .world = 4, .trouble = {}, .address = {1, 2, 3}};

TEST(Hello, comes_back) {
  const auto blob = write_hello(kRank2);
  const auto heard = read_hello(blob, 2, 4);
  ASSERT_TRUE(heard.ok()) << heard.status().what();
  EXPECT_EQ(std::vector<std::uint8_t>(heard->address.begin(), heard->address.end()), kRank2.address);
  EXPECT_EQ(heard->home.system, my_home().system);
  EXPECT_EQ(heard->home.process, static_cast<std::uint32_t>(getpid()));
}

TEST(Hello, names_the_rank_that_differs) {
  struct Change {
    std::size_t byte;
    Code code;
    const char* text;
  };
  // magic, hello version, frame version, world, rank, UCX major, UCX minor
  for (const Change& c : {Change{0, Code::kCorrupt, "address"}, Change{4, Code::kMismatch, "version"},
                          Change{6, Code::kMismatch, "version"}, Change{8, Code::kMismatch, "world size"},
                          Change{12, Code::kMismatch, "calls itself"}, Change{16, Code::kMismatch, "UCX"},
                          Change{20, Code::kMismatch, "UCX"}}) {
    auto blob = write_hello(kRank2);
    blob[c.byte] ^= 0x10;
    const Status s = read_hello(blob, 2, 4).status();
    EXPECT_EQ(s.code(), c.code) << "byte " << c.byte << ": " << s.what();
    EXPECT_EQ(s.peer(), 2);
    EXPECT_NE(s.what().find("rank 2"), std::string::npos);
    EXPECT_NE(s.what().find(c.text), std::string::npos) << s.what();
  }
}

TEST(Hello, cut_ones_are_refused) {
  const auto blob = write_hello(kRank2);
  for (std::size_t n = 0; n <= blob.size() - kRank2.address.size(); ++n)
    EXPECT_FALSE(read_hello(std::span(blob).first(n), 2, 4).ok()) << n;
}

TEST(Hello, carries_trouble) {
  const Status s =
      read_hello(
          write_hello({.rank = 1, .world = 2, .trouble = {Code::kIo, "no such device"}, .address = {}}), 1, 2)
          .status();
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_EQ(s.peer(), 1);
  EXPECT_NE(s.what().find("no such device"), std::string::npos);
}

// A rank that cannot open UCX still takes part in the exchange, so that the others learn why at once.
TEST(OpenUcx, shares_what_went_wrong) {
  std::vector<std::uint8_t> shown;
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    shown.assign(mine.begin(), mine.end());
    return std::vector<std::vector<std::uint8_t>>(2, shown);
  };
  const auto opened = open_ucx(0, 2, exchange, {.transports = "tcp", .devices = "no_such_device"});
  EXPECT_EQ(opened.status().code(), Code::kIo) << opened.status().what();
  const Status heard = read_hello(shown, 0, 2).status();
  EXPECT_EQ(heard.code(), Code::kIo);
  EXPECT_EQ(heard.peer(), 0);
  EXPECT_NE(heard.what().find("no_such_device"), std::string::npos) << heard.what();
}

TEST(OpenUcx, refuses_an_impossible_place) {
  const AllGather never = [](ByteView) -> Result<std::vector<std::vector<std::uint8_t>>> {
    ADD_FAILURE() << "nothing should be exchanged";
    return Status(Code::kInvalid, "");
  };
  EXPECT_EQ(open_ucx(2, 2, never).status().code(), Code::kInvalid);
  EXPECT_EQ(open_ucx(-1, 2, never).status().code(), Code::kInvalid);
  EXPECT_EQ(open_ucx(0, 0, never).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tithe::ucx
