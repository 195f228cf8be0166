// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/open.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <thread>

#include "base/bytes.h"
#include "transport/hello.h"

namespace tithe::ucx {
namespace {

// Checksum and tag as they should be.
void seal_again(std::vector<std::uint8_t>& blob, const Token& token) {
  const std::size_t body = blob.size() - 8 - kSecretBytes;
  wire::put(&blob[body], static_cast<std::uint64_t>(XXH3_64bits(blob.data(), body)));
  const Secret tag = derive(token, "tithe hello", {ByteView(blob).first(body + 8)});
  std::copy(tag.begin(), tag.end(), blob.begin() + static_cast<std::ptrdiff_t>(body + 8));
}

// A rank that cannot open UCX still takes part in the exchange, so that the others learn why at once.
TEST(OpenUcx, shares_what_went_wrong) {
  std::vector<std::uint8_t> shown;
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    shown.assign(mine.begin(), mine.end());
    return std::vector<std::vector<std::uint8_t>>(2, shown);
  };
  const auto opened =
      open({.world = 2, .all_gather = exchange}, {.transports = "tcp", .devices = "no_such_device"});
  EXPECT_EQ(opened.status().code(), Code::kIo) << opened.status().what();
  const Status heard = read_hello(shown, 0, 2, {}, dialect()).status();
  EXPECT_EQ(heard.code(), Code::kIo);
  EXPECT_EQ(heard.peer(), 0);
  EXPECT_NE(heard.what().find("no_such_device"), std::string::npos) << heard.what();
}

// The exchange is the caller's: a blob that it damages gives a Status.
TEST(OpenUcx, a_damaged_address_blob_gives_a_status) {
  for (const std::size_t from_end : {41UL, 60UL, 100UL}) {
    const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
      std::vector<std::vector<std::uint8_t>> all(2, {mine.begin(), mine.end()});
      wire::put(&all[1][12], std::uint32_t{1});
      seal_again(all[1], {});
      all[1][all[1].size() - from_end] ^= 0xff;
      return all;
    };
    const Status s =
        open({.world = 2, .all_gather = exchange}, {.transports = "tcp", .devices = ""}).status();
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.what();
    EXPECT_EQ(s.peer(), 1);
  }
}

// A peer that never connects costs the timeout that was given, not a fixed minute.
TEST(OpenUcx, one_timeout_governs_connecting) {
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    std::vector<std::vector<std::uint8_t>> all(2, {mine.begin(), mine.end()});
    wire::put(&all[1][12], std::uint32_t{1});
    seal_again(all[1], {});  // an address that works, of a rank that is not there: this rank's own
    return all;
  };
  const auto begin = std::chrono::steady_clock::now();
  const Status s = open({.world = 2, .all_gather = exchange, .timeout = std::chrono::milliseconds(700)},
                        {.transports = "tcp", .devices = ""})
                       .status();
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(s.peer(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// Connecting to a rank that never comes ran into its timeout, whoever had given up meanwhile.
TEST(OpenUcx, connecting_can_be_withdrawn) {
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    std::vector<std::vector<std::uint8_t>> all(2, {mine.begin(), mine.end()});
    wire::put(&all[1][12], std::uint32_t{1});
    seal_again(all[1], {});
    return all;
  };
  std::atomic<bool> withdrawn = false;
  std::atomic<int> asked = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    withdrawn = true;
  });
  const ConnectOptions connect{
      .world = 2, .all_gather = exchange, .timeout = std::chrono::minutes(10), .interrupted = [&] {
        ++asked;
        return withdrawn.load();
      }};
  const Status s = open(connect, {.transports = "tcp", .devices = ""}).status();
  later.join();
  EXPECT_TRUE(s.code() == Code::kCancelled || s.code() == Code::kPeerLost) << s.what();
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace tithe::ucx
