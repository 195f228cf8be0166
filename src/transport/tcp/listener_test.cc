// SPDX-License-Identifier: Apache-2.0
// Tests the listener with callers of several kinds.
#include "transport/tcp/listener.h"

#include <gtest/gtest.h>

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

const Job kHost{.rank = 0, .world = 3, .key = {1}};
const Job kCaller{.rank = 1, .world = 3, .key = {1}};
constexpr ConnectRequest kKnock{.purpose = Purpose::kControl, .from = 1, .to = 0};

class TcpListener : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(listener_.listen(at_).ok());
    listener_.open([this](const ConnectRequest& request, const std::shared_ptr<Wire>& wire) {
      heard_.push_back(request);
      let_in_.push_back(wire);
      return true;
    });
  }
  // Runs the context until `until` returns true.
  template <typename Until>
  void run(Until until) {
    const auto deadline = Clock::now() + 20s;
    while (!until() && Clock::now() < deadline) context_.run_one_for(1ms);
  }
  void end_operations() {
    for (int i = 0; i < 50; ++i) context_.run_one_for(1ms);
  }
  std::shared_ptr<Wire> visit() {
    Result<UniqueFd> socket = connect_to(at_[0], 0);
    EXPECT_TRUE(socket.ok()) << socket.status().what();
    std::shared_ptr<Wire> wire = Wire::adopt(context_, std::move(*socket));
    end_operations();
    return wire;
  }
  // The number of bytes that arrived, and whether the listener closed the connection.
  static std::pair<std::size_t, bool> heard(Wire& wire) {
    std::uint8_t some[4096];
    std::size_t all = 0;
    for (;;) {
      const std::ptrdiff_t n = wire.read(some);
      if (n <= 0) return {all, n < 0};
      all += static_cast<std::size_t>(n);
    }
  }
  // Connects to the listener as this job; returns the Status, and the wire if it is ok.
  std::pair<Status, std::shared_ptr<Wire>> call(const Job& job, const ConnectRequest& request) {
    std::optional<std::pair<Status, std::shared_ptr<Wire>>> done;
    Connector one(context_, job, request, at_,
                  [&](Status s, std::shared_ptr<Wire> wire) { done.emplace(std::move(s), std::move(wire)); });
    one.begin();
    run([&] { return done.has_value(); });
    return done.value_or(std::pair(Status(Code::kTimeout, "nobody answered"), nullptr));
  }

  asio::io_context context_{1};
  Job host_ = kHost;
  Listener listener_{context_, host_};
  std::vector<Endpoint> at_{{asio::ip::address_v4::loopback(), 0}};
  std::vector<ConnectRequest> heard_;
  std::vector<std::shared_ptr<Wire>> let_in_;
};

TEST_F(TcpListener, a_rank_of_the_job_is_accepted) {
  const auto [status, wire] = call(kCaller, kKnock);
  ASSERT_TRUE(status.ok()) << status.what();
  ASSERT_EQ(let_in_.size(), 1U);
  EXPECT_EQ(heard_[0].from, 1);
  const std::uint8_t word[] = {1, 2, 3};
  EXPECT_EQ(wire->write(word), 3);
  std::uint8_t got[8];
  run([&] { return let_in_[0]->read(got) == 3; });
  EXPECT_EQ(got[2], 3);
}

TEST_F(TcpListener, both_sides_refuse_another_key) {
  Job other = kCaller;
  other.key = {2};
  const Status s = call(other, kKnock).first;
  EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
  EXPECT_EQ(s.peer(), 0);
  EXPECT_TRUE(let_in_.empty());
}

TEST_F(TcpListener, unexpected_ranks_are_refused) {
  for (const ConnectRequest& wrong : {ConnectRequest{.from = 1, .to = 2}, ConnectRequest{.from = 0, .to = 0},
                                      ConnectRequest{.from = 3, .to = 0}}) {
    EXPECT_FALSE(call(kCaller, wrong).first.ok());
  }
  EXPECT_TRUE(let_in_.empty());
}

TEST_F(TcpListener, an_unauthenticated_client_gets_only_a_challenge) {
  const auto wire = visit();
  const auto request = write_request(kKnock);
  EXPECT_EQ(wire->write(request), static_cast<std::ptrdiff_t>(kConnectRequestBytes));
  end_operations();
  EXPECT_EQ(heard(*wire), std::pair(kChallengeBytes, false));
  const std::vector<std::uint8_t> guess(kClaimBytes, 9);
  EXPECT_EQ(wire->write(guess), static_cast<std::ptrdiff_t>(kClaimBytes));
  end_operations();
  EXPECT_EQ(heard(*wire), std::pair(std::size_t{0}, true));
  EXPECT_TRUE(let_in_.empty());
  const auto other = visit();
  const std::vector<std::uint8_t> noise(100'000, 'x');
  EXPECT_GT(other->write(noise), 0);
  end_operations();
  EXPECT_EQ(heard(*other), std::pair(std::size_t{0}, true));
}

// A recorded request and its claim do not match the new challenge.
TEST_F(TcpListener, replayed_handshakes_are_refused) {
  const auto request = write_request(kKnock);
  std::vector<std::uint8_t> claimed;
  for (int k = 0; k < 2; ++k) {
    const auto wire = visit();
    EXPECT_GT(wire->write(request), 0);
    end_operations();
    std::array<std::uint8_t, kChallengeBytes> challenge;
    ASSERT_EQ(wire->read(challenge), static_cast<std::ptrdiff_t>(kChallengeBytes));
    if (k == 0) {
      const Secret right = claim(kCaller.key, request, *read_challenge(kCaller.key, request, challenge));
      claimed.assign(right.begin(), right.end());
    }
    EXPECT_GT(wire->write(claimed), 0);
    end_operations();
    EXPECT_EQ(let_in_.size(), 1U) << k;
  }
}

// Hundreds of callers that send nothing, or an incomplete message: slots are limited, and a real rank still connects.
TEST_F(TcpListener, idle_connections_hold_no_memory_or_slot) {
  std::vector<std::shared_ptr<Wire>> crowd;
  for (int i = 0; i < 300; ++i) {
    Result<UniqueFd> socket = connect_to(at_[0], 0);
    ASSERT_TRUE(socket.ok());
    crowd.push_back(Wire::adopt(context_, std::move(*socket)));
    if (i % 2 == 0) (void)crowd.back()->write(ByteView(write_request(kKnock)).first(20));
    context_.poll();
    EXPECT_LE(listener_.pending(), 64U);
  }
  end_operations();
  EXPECT_EQ(listener_.pending(), 64U);
  EXPECT_TRUE(call(kCaller, kKnock).first.ok());
  listener_.maintain(Clock::now() + 6s);
  EXPECT_EQ(listener_.pending(), 0U);
}

}  // namespace
}  // namespace tithe::tcp
