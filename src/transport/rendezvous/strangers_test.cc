// SPDX-License-Identifier: Apache-2.0
// Clients that do not belong to the job.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "support/reserved_port.h"
#include "transport/rendezvous/handshake.h"
#include "transport/rendezvous/socket.h"

namespace tithe::rendezvous {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Gathered = Result<std::vector<Blob>>;

const Token kToken(32, 5);

Launch launch(Rank rank, int world, int port, std::chrono::milliseconds timeout = 30s) {
  Launch l;
  l.rank = rank;
  l.world = world;
  l.host = "127.0.0.1";
  l.port = port;
  l.timeout = timeout;
  l.token = kToken;
  return l;
}

const Blob kAddress0(700, 0xA0), kAddress1(700, 0xA1);

Socket visit(int port) {
  const auto deadline = Clock::now() + 20s;
  while (Clock::now() < deadline) {
    Result<Socket> s = connect_to("127.0.0.1", port, deadline);
    if (s.ok()) return std::move(*s);
    std::this_thread::sleep_for(1ms);
  }
  ADD_FAILURE() << "rank 0 does not listen";
  return {};
}

// The bytes that arrive within `most`, or until the other side closes.
Blob hear(const Socket& s, std::chrono::milliseconds most) {
  Blob out;
  std::uint8_t some[4096];
  const auto deadline = Clock::now() + most;
  while (ready(s, false, deadline).ok()) {
    const std::ptrdiff_t n = recv_some(s, some);
    if (n < 0) break;
    out.insert(out.end(), some, some + n);
  }
  return out;
}

// Two ranks rendezvous while `stranger` uses rank 0's port. Rank 1 starts after the stranger.
void meet_beside(const std::function<void(int port)>& stranger, std::chrono::milliseconds most = 20s) {
  const testing::ReservedPort port;
  Gathered got[2] = {Status(Code::kIo, "not run"), Status(Code::kIo, "not run")};
  std::thread zero([&] { got[0] = open_rendezvous(launch(0, 2, port))(kAddress0); });
  stranger(port);
  const auto begin = Clock::now();
  std::thread one([&] { got[1] = open_rendezvous(launch(1, 2, port))(kAddress1); });
  zero.join();
  one.join();
  EXPECT_LT(Clock::now() - begin, most);
  for (const Gathered& g : got) {
    ASSERT_TRUE(g.ok()) << g.status().what();
    EXPECT_EQ(*g, (std::vector<Blob>{kAddress0, kAddress1}));
  }
}

// A client without a proof must not get any rank's address.
TEST(RendezvousStrangers, client_with_an_old_header_gets_no_data) {
  Blob heard;
  meet_beside([&](int port) {
    const Socket s = visit(port);
    Blob header(20);
    const std::uint32_t words[] = {0x544d5454, 1, 2, 1, 0};
    std::copy_n(reinterpret_cast<const std::uint8_t*>(words), 20, header.begin());
    EXPECT_TRUE(send_all(s, header, Clock::now() + 5s).ok());
    heard = hear(s, 300ms);
  });
  EXPECT_TRUE(heard.empty());
}

TEST(RendezvousStrangers, client_without_the_token_gets_no_data) {
  Blob heard;
  meet_beside([&](int port) {
    const Socket s = visit(port);
    Handshake shake{.token = Token(32, 6)};
    EXPECT_TRUE(send_all(s, write_request(shake.client), Clock::now() + 5s).ok());
    Blob challenge(kChallengeBytes);
    ASSERT_TRUE(recv_all(s, challenge, Clock::now() + 5s).ok());
    EXPECT_FALSE(read_challenge(challenge, shake).ok());  // rank 0 has another token
    EXPECT_TRUE(send_all(s, write_claim(shake, 2, 1, Blob(10)), Clock::now() + 5s).ok());
    heard = hear(s, 2s);
  });
  EXPECT_TRUE(heard.empty());
}

TEST(RendezvousStrangers, addresses_are_encrypted) {
  Handshake shake{.token = kToken, .client = {1}, .host = {2}};
  const std::vector<Blob> all{kAddress0, kAddress1};
  for (const Blob& message : {write_claim(shake, 2, 1, kAddress1), write_answer(shake, {}, all)})
    EXPECT_EQ(std::search(message.begin(), message.end(), kAddress1.begin(), kAddress1.begin() + 16),
              message.end());
}

TEST(RendezvousStrangers, two_hundred_idle_clients_do_not_block_the_rendezvous) {
  std::vector<Socket> idle;
  std::atomic<bool> stop{false};
  std::thread more;
  meet_beside([&](int port) {
    for (int k = 0; k < 200; ++k) idle.push_back(visit(port));
    more = std::thread([&, port] {  // more strangers keep connecting
      while (!stop) {
        Result<Socket> s = connect_to("127.0.0.1", port, Clock::now() + 1s);
        if (s.ok()) idle.push_back(std::move(*s));
        std::this_thread::sleep_for(5ms);
      }
    });
  });
  stop = true;
  more.join();
}

TEST(RendezvousStrangers, a_client_that_sends_a_byte_per_second_is_dropped) {
  meet_beside([&](int port) {
    const Socket s = visit(port);
    const Blob request = write_request({});
    bool dropped = false;
    for (std::size_t k = 0; k < 20 && !dropped; ++k) {
      dropped = !send_all(s, ByteView(request).subspan(k, 1), Clock::now() + 1s).ok() ||
                (ready(s, false, Clock::now() + 500ms).ok() && hear(s, 10ms).empty());
    }
    EXPECT_TRUE(dropped);
  });
}

TEST(RendezvousStrangers, a_rank_with_another_token_fails_at_once) {
  const testing::ReservedPort port;
  Gathered zero = Status(Code::kIo, "not run");
  std::thread host([&] { zero = open_rendezvous(launch(0, 2, port, 3s))(kAddress0); });
  Launch other = launch(1, 2, port);
  other.token = Token(32, 6);
  const Status s = open_rendezvous(other)(kAddress1).status();
  host.join();
  EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
  EXPECT_NE(s.what().find("TITHE_TOKEN"), std::string::npos) << s.what();
  EXPECT_EQ(zero.status().code(), Code::kTimeout);
  EXPECT_NE(zero.status().what().find("TITHE_TOKEN"), std::string::npos) << zero.status().what();
}

// A client that leaves before rank 0 reads its request still counts, so that rank 0's error mentions tokens.
TEST(RendezvousStrangers, clients_that_disconnect_are_counted) {
  const testing::ReservedPort port;
  Gathered zero = Status(Code::kIo, "not run");
  std::thread host([&] { zero = open_rendezvous(launch(0, 2, port, 3s))(kAddress0); });
  for (int k = 0; k < 20; ++k) {
    const Socket s = visit(port);
    EXPECT_TRUE(send_all(s, write_request({}), Clock::now() + 5s).ok());
  }
  host.join();
  EXPECT_NE(zero.status().what().find("20 processes connected"), std::string::npos) << zero.status().what();
}

// Another program listens at rank 0's address: detected without waiting for the timeout.
TEST(RendezvousStrangers, silent_or_closing_servers_are_not_rank_0) {
  for (const bool silent : {false, true}) {
    const testing::ReservedPort port;
    int why = 0;
    auto holder = listen_on(port, &why);
    ASSERT_TRUE(holder.ok());
    std::atomic<bool> stop{false};
    std::thread someone([&] {
      std::vector<Socket> kept;
      while (!stop) {
        Socket s = accept_from(*holder);
        if (s.is_open() && silent) kept.push_back(std::move(s));
        std::this_thread::sleep_for(1ms);
      }
    });
    const auto begin = Clock::now();
    const Status s = open_rendezvous(launch(1, 2, port, silent ? 4s : 60s))(kAddress1).status();
    EXPECT_LT(Clock::now() - begin, 30s);  // the timeout is a minute if it closes connections
    EXPECT_EQ(s.code(), silent ? Code::kTimeout : Code::kMismatch) << s.what();
    EXPECT_NE(s.what().find("not tithe's rank 0"), std::string::npos) << s.what();
    stop = true;
    someone.join();
  }
}

TEST(RendezvousStrangers, without_a_token_only_local_clients_are_accepted) {
  Launch l = launch(0, 2, testing::ReservedPort(), 300ms);
  l.token.clear();
  l.host = "192.0.2.1";  // a documentation address (RFC 5737)
  for (const Rank r : {0, 1}) {
    l.rank = r;
    const Status s = open_rendezvous(l)(kAddress0).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << s.what();
    EXPECT_NE(s.what().find("set TITHE_TOKEN"), std::string::npos) << s.what();
  }
  l.unguarded = true;
  EXPECT_EQ(open_rendezvous(l)(kAddress0).status().code(), Code::kTimeout);
  l.unguarded = false;
  l.host = "localhost";
  l.rank = 0;
  EXPECT_EQ(open_rendezvous(l)(kAddress0).status().code(), Code::kTimeout);
}

TEST(RendezvousStrangers, rank_0_listens_on_the_given_address) {
  const testing::ReservedPort port;
  int why = 0;
  const auto at = listen_at("127.0.0.1", port, true, &why);
  ASSERT_TRUE(at.ok()) << at.status().what();
  ASSERT_EQ(at->size(), 1U);
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(getsockname((*at)[0].get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  EXPECT_EQ(ntohl(bound.sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_FALSE(is_loopback("192.0.2.1"));
}

// ---- Files

class RendezvousFileStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "tithe-strangers-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Launch launch_here(Rank rank, std::chrono::milliseconds timeout) const {
    Launch l;
    l.rank = rank;
    l.world = 2;
    l.file = (folder_ / "meeting").string();
    l.timeout = timeout;
    return l;
  }
  std::filesystem::path folder_;
};

TEST_F(RendezvousFileStrangers, rank_files_are_private) {
  std::optional<Gathered> got;
  std::thread rank([&] { got = open_rendezvous(launch_here(0, 1s))(kAddress0); });
  struct stat s {};
  const auto deadline = Clock::now() + 20s;
  while (stat((folder_ / "meeting.0").c_str(), &s) != 0 && Clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(s.st_mode & 0777, 0600U);
  rank.join();
}

TEST_F(RendezvousFileStrangers, a_file_that_others_can_write_is_refused) {
  const auto theirs = folder_ / "meeting.1";
  std::ofstream(theirs) << "anything";
  std::filesystem::permissions(theirs, std::filesystem::perms(0666));
  const Status s = open_rendezvous(launch_here(0, 20s))(kAddress0).status();
  EXPECT_EQ(s.code(), Code::kIo) << s.what();
  EXPECT_NE(s.what().find("accessible to other users"), std::string::npos) << s.what();
}

// ---- Origin of the token

class TokenFrom : public RendezvousFileStrangers {
 protected:
  void TearDown() override {
    unsetenv("TITHE_TOKEN");
    unsetenv("TITHE_TOKEN_FILE");
    RendezvousFileStrangers::TearDown();
  }
  static Result<TokenGiven> given(const char* token, const std::string& file = {}) {
    unsetenv("TITHE_TOKEN");
    unsetenv("TITHE_TOKEN_FILE");
    if (token != nullptr) setenv("TITHE_TOKEN", token, 1);
    if (!file.empty()) setenv("TITHE_TOKEN_FILE", file.c_str(), 1);
    return token_from_environment();
  }
  const std::string digits_ = "00112233445566778899aAbBcCdDeEfF";
};

TEST_F(TokenFrom, the_environment) {
  EXPECT_TRUE(given(nullptr)->token.empty());
  EXPECT_FALSE(given(nullptr)->unguarded);
  EXPECT_TRUE(given("none")->unguarded);
  const auto t = given(digits_.c_str());
  ASSERT_TRUE(t.ok()) << t.status().what();
  EXPECT_EQ(t->token.size(), 16U);
  EXPECT_EQ(t->token[10], 0xaa);
  for (const std::string& odd :
       {digits_.substr(1), digits_.substr(2), digits_ + "xy", std::string("secret")}) {
    const Status s = given(odd.c_str()).status();
    EXPECT_EQ(s.code(), Code::kInvalid);
    EXPECT_NE(s.what().find("TITHE_TOKEN"), std::string::npos);
    EXPECT_EQ(s.what().find(odd), std::string::npos) << "the error contains the secret: " << s.what();
  }
}

TEST_F(TokenFrom, a_file_of_this_user_alone) {
  const auto path = folder_ / "token";
  std::ofstream(path) << digits_ << "\n";
  chmod(path.c_str(), 0644);
  const Status s = given(nullptr, path).status();
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_NE(s.what().find("chmod 600"), std::string::npos) << s.what();
  chmod(path.c_str(), 0400);
  const auto t = given(nullptr, path);
  ASSERT_TRUE(t.ok()) << t.status().what();
  EXPECT_EQ(t->token.size(), 16U);
  EXPECT_EQ(given(nullptr, folder_ / "none").status().code(), Code::kInvalid);
  EXPECT_EQ(given(nullptr, folder_).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tithe::rendezvous
