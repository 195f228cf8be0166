// SPDX-License-Identifier: Apache-2.0
// commit() waits until all peers have this rank's done message, and only the lane that sends it wakes the caller. A
// peer may be lost at this moment. The caller must not sleep until a time of the transport's clock, which is not the
// clock of its thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "support/forwarding_transport.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::Ranks;
using testing::text;

enum class Fate : std::uint8_t { kPeerGoes, kSendFails, kNeverTaken };

// Rank 0's transport. Its clock is an hour ahead. Once armed, the next control message has this fate, late enough
// that the caller sleeps by then.
class HeldBack final : public testing::ForwardingTransport {
 public:
  HeldBack(std::unique_ptr<Transport> inner, Fate fate)
      : ForwardingTransport(std::move(inner)), fate_(fate) {}

  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (channel != 0 || !armed_ || fate_ == Fate::kPeerGoes) return inner_->send(peer, channel, bytes, op);
    std::this_thread::sleep_for(50ms);
    if (fate_ == Fate::kSendFails) return {Code::kPeerLost, "it went", peer};
    taken_ = true;
    return {};
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    if (channel == 0) hears_ = op;
    return inner_->recv(peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    if (heard_ == 2) ready = true;  // rank 1's control messages of its round have arrived
    if (taken_) {
      std::this_thread::sleep_for(50ms);
      passed_ = passed_.load() + std::chrono::duration_cast<std::chrono::seconds>(wait) + 1s;
      return 0;
    }
    const std::size_t n = inner_->poll(out, wait);
    for (std::size_t k = 0; k < n; ++k) heard_ += out[k].op == hears_ ? 1 : 0;
    if (n > 0 || !armed_ || fate_ != Fate::kPeerGoes || gone_) return n;
    gone_ = true;
    std::this_thread::sleep_for(50ms);
    out[0] = {hears_, 0, {Code::kPeerLost, "it went", 1}};
    return 1;
  }
  std::chrono::steady_clock::time_point now() const override { return inner_->now() + 1h + passed_.load(); }

  void arm() { armed_ = true; }
  std::atomic<bool> ready{false};

 private:
  const Fate fate_;
  std::atomic<bool> armed_{false};
  std::atomic<std::chrono::seconds> passed_{0s};
  OpId hears_ = 0;
  int heard_ = 0;  // control messages: a card and a done message
  bool gone_ = false, taken_ = false;
};

void commit_returns(Fate fate) {
  auto transports = open_loop(2);
  auto late = std::make_unique<HeldBack>(std::move(transports[0]), fate);
  HeldBack& line = *late;
  transports[0] = std::move(late);
  Ranks ranks(std::move(transports), {.codec = "fp32", .lanes = 1});
  std::atomic<bool> helped{false};
  ranks.each([&](Rank r) {
    std::vector<float> values(100, 1.0F);
    const Tensor t{.key = "w", .data = values.data(), .n = values.size()};
    const Result<Ticket> ticket = ranks[r].sync({&t, 1});
    ASSERT_TRUE(ticket.ok()) << text(ticket.status());
    const Status waited = ranks[r].wait(*ticket);
    ASSERT_TRUE(waited.ok()) << text(waited);
    if (r == 1) return (void)ranks[1].commit();  // its result depends on the end of rank 0
    while (!line.ready) std::this_thread::yield();
    line.arm();
    std::promise<void> done;
    std::thread watchdog([&] {
      if (done.get_future().wait_for(20s) == std::future_status::ready) return;
      helped = true;
      ranks[0].cancel();
    });
    const Status s = ranks[0].commit();
    EXPECT_TRUE(s.ok()) << "all ranks have ended the round: " << text(s);
    done.set_value();
    watchdog.join();
    ranks.close(0);
  });
  EXPECT_FALSE(helped) << "commit() did not return by itself";
}

TEST(SessionWord, CommitDoesNotWaitForAPeerThatLeft) { commit_returns(Fate::kPeerGoes); }
TEST(SessionWord, CommitDoesNotWaitIfTheDoneMessageCannotBeSent) { commit_returns(Fate::kSendFails); }
TEST(SessionWord, CommitReturnsIfAPeerStalls) { commit_returns(Fate::kNeverTaken); }

}  // namespace
}  // namespace tithe
