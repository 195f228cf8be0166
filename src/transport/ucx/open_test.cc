// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/open.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <ucp/api/ucp.h>
#include <xxhash.h>

#include <atomic>
#include <thread>

#include "base/bytes.h"
#include "transport/peer_info.h"
#include "transport/ucx/causes.h"

namespace tithe::ucx {
namespace {

// Recomputes the checksum and the tag.
void seal_again(std::vector<std::uint8_t>& blob, const Token& token) {
  const std::size_t body = blob.size() - 8 - kSecretBytes;
  wire::put(&blob[body], static_cast<std::uint64_t>(XXH3_64bits(blob.data(), body)));
  const Secret tag = derive(token, "tithe hello", {ByteView(blob).first(body + 8)});
  std::copy(tag.begin(), tag.end(), blob.begin() + static_cast<std::ptrdiff_t>(body + 8));
}

// A rank that fails to open UCX takes part in the exchange, so that the others get the reason at once.
TEST(OpenUcx, shares_the_error_with_all_ranks) {
  std::vector<std::uint8_t> shown;
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    shown.assign(mine.begin(), mine.end());
    return std::vector<std::vector<std::uint8_t>>(2, shown);
  };
  const auto opened =
      open({.world = 2, .all_gather = exchange}, {.transports = "tcp", .devices = "no_such_device"});
  EXPECT_EQ(opened.status().code(), Code::kIo) << opened.status().what();
  const Status heard = read_peer_info(shown, 0, 2, {}, version()).status();
  EXPECT_EQ(heard.code(), Code::kIo);
  EXPECT_EQ(heard.peer(), 0);
  EXPECT_NE(heard.what().find("no_such_device"), std::string::npos) << heard.what();
}

// The exchange is the caller's: a damaged blob gives a Status.
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

// A peer that never connects costs the given timeout.
TEST(OpenUcx, one_timeout_governs_connecting) {
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    std::vector<std::vector<std::uint8_t>> all(2, {mine.begin(), mine.end()});
    wire::put(&all[1][12], std::uint32_t{1});
    seal_again(all[1], {});  // a valid address of a rank that does not exist: this rank's own
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

// Withdrawing ends the wait for a missing rank before the timeout.
TEST(OpenUcx, connecting_can_be_cancelled) {
  const AllGather exchange = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    std::vector<std::vector<std::uint8_t>> all(2, {mine.begin(), mine.end()});
    wire::put(&all[1][12], std::uint32_t{1});
    seal_again(all[1], {});
    return all;
  };
  std::atomic<bool> withdrawn = false;
  std::atomic<int> polls = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    withdrawn = true;
  });
  const ConnectOptions connect{
      .world = 2, .all_gather = exchange, .timeout = std::chrono::minutes(10), .interrupted = [&] {
        ++polls;
        return withdrawn.load();
      }};
  const Status s = open(connect, {.transports = "tcp", .devices = ""}).status();
  later.join();
  EXPECT_TRUE(s.code() == Code::kCancelled || s.code() == Code::kPeerLost) << s.what();
  EXPECT_GT(polls, 0);
}

// MPI for Python brings its own UCX, for which UCX itself reports only "Invalid parameter".
TEST(UcxFailureCauses, name_another_ucx_of_this_process_and_the_cure) {
  EXPECT_EQ(another_ucx(), "");
  const std::string text = another_ucx(UCP_API_MAJOR, UCP_API_MINOR + 1);
  EXPECT_NE(text.find(fmt::format("UCX {}.{}", UCP_API_MAJOR, UCP_API_MINOR + 1)), std::string::npos) << text;
  EXPECT_NE(text.find("transport=\"tcp\""), std::string::npos) << text;
}

// A pod's 64 MiB are too small for eight ranks, but each rank may see free space after the others have failed.
TEST(UcxFailureCauses, count_shared_memory_for_all_ranks) {
  struct statvfs shm {};
  ASSERT_EQ(statvfs("/dev/shm", &shm), 0);
  const double all = static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize);
  const std::string text = little_shared_memory(static_cast<int>(all / 8e6));
  EXPECT_NE(text.find("/dev/shm has"), std::string::npos) << text;
  EXPECT_NE(text.find("--shm-size"), std::string::npos) << text;
  EXPECT_NE(little_shared_memory(1, "/no/such/folder").find("does not exist"), std::string::npos);
}

}  // namespace
}  // namespace tithe::ucx
