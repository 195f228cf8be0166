// SPDX-License-Identifier: Apache-2.0
// Sessions on a shared network: an attacker inserts messages into the connection from rank 1 to rank 0.
#include <gtest/gtest.h>

#include "base/secret.h"
#include "engine/peers/control.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;

const Secret kKey{7};
constexpr OpId kStrange = ~OpId{0} >> 1;

// The connection of rank 1, where an attacker can send messages to rank 0.
class Tapped final : public testing::ForwardingTransport {
 public:
  // Called before the message is sent.
  using Tap = std::function<void(Transport& line, Channel channel, ByteView bytes)>;
  Tapped(std::unique_ptr<Transport> line, Tap tap)
      : ForwardingTransport(std::move(line)), tap_(std::move(tap)) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (peer == 0) tap_(*inner_, channel, bytes);
    return inner_->send(peer, channel, bytes, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    std::size_t n = inner_->poll(out, wait);
    for (std::size_t k = 0; k < n;)  // completions of the attacker's messages are dropped
      if (out[k].op == kStrange)
        out[k] = std::move(out[--n]);
      else
        ++k;
    return n;
  }

 private:
  Tap tap_;
};

std::vector<std::unique_ptr<Transport>> tapped(ByteView key, Tapped::Tap tap) {
  auto all = open_loop(2, key);
  all[1] = std::make_unique<Tapped>(std::move(all[1]), std::move(tap));
  return all;
}

Status round(Session& session, std::size_t n = 500) {
  std::vector<float> values(n, static_cast<float>(session.rank()));
  const Tensor t{.key = "a", .data = values.data(), .n = n};
  const Result<Ticket> ticket = session.sync({&t, 1});
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  EXPECT_EQ(values[n / 2], 0.5F);
  return session.commit();
}

SessionOptions options() {
  return {
      .codec = "fp32", .strategy = "gather", .min_values = 0, .timeout = std::chrono::milliseconds(10'000)};
}

std::vector<std::uint8_t> forged_farewell(Tags* tags) {
  std::vector<std::uint8_t> frame(engine::kControlBytes);
  frame.resize(engine::write_farewell({.code = Code::kPeerLost, .blamed = 1, .round = 0, .what = "killed"},
                                      {.me = 1, .world = 2, .tags = tags}, frame));
  return frame;
}

// An untagged or wrongly tagged message must not end the job or blame rank 1.
TEST(Strangers, a_forged_farewell_is_ignored) {
  Tags other_job(Secret{8}, 1);
  bool done = false;
  Ranks ranks(tapped(kKey,
                     [&](Transport& line, Channel channel, ByteView) {
                       if (channel != 0 || std::exchange(done, true)) return;
                       for (Tags* tags : {static_cast<Tags*>(nullptr), &other_job})
                         EXPECT_TRUE(line.send(0, 0, forged_farewell(tags), kStrange).ok());
                       // The second is longer than any control message of a rank.
                       for (const std::size_t bytes : {700, 2000}) {
                         const std::vector<std::uint8_t> noise(bytes, 0x5a);
                         EXPECT_TRUE(line.send(0, 0, noise, kStrange).ok());
                       }
                     }),
              options());
  ranks.each([&](Rank r) {
    for (int k = 0; k < 3; ++k) {
      const Status s = round(ranks[r]);
      EXPECT_TRUE(s.ok()) << s.what();
    }
  });
  EXPECT_TRUE(done);
  EXPECT_EQ(ranks[0].stats().messages_ignored, 4U);
}

constexpr std::size_t kAtKind = 26;  // docs/reference/format.md: phase

// The k-th control message of rank 1 to rank 0 has a flipped bit. Its tag is invalid, so rank 0 must ignore it. The
// next message with a count (Report::messages_sent) shows that one is missing.
class Damages final : public testing::ForwardingTransport {
 public:
  Damages(std::unique_ptr<Transport> line, int which) : ForwardingTransport(std::move(line)), which_(which) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    const auto kind = static_cast<engine::ControlKind>(bytes[kAtKind]);
    // Not an ask.
    const bool due = kind == engine::ControlKind::kCard || kind == engine::ControlKind::kDone;
    if (peer != 0 || channel != 0 || !due || which_-- != 0) return inner_->send(peer, channel, bytes, op);
    changed_.assign(bytes.begin(), bytes.end());
    changed_[changed_.size() / 2] ^= 4;
    return inner_->send(peer, channel, changed_, op);
  }

 private:
  int which_;
  std::vector<std::uint8_t> changed_;
};

TEST(Strangers, a_damaged_control_message_is_detected_by_the_count_of_the_next) {
  SessionOptions soon = options();
  soon.timeout = std::chrono::milliseconds(2000);
  soon.patience = std::chrono::minutes(5);
  for (int which = 0; which < 4; ++which) {  // the card, and the ends of three rounds
    auto all = open_loop(2, kKey);
    all[1] = std::make_unique<Damages>(std::move(all[1]), which);
    Ranks ranks(std::move(all), soon);
    ranks.each([&](Rank r) {
      Status s;
      // A round that rank 1 has committed counts.
      for (int k = 0; k < 4 && s.ok(); ++k) s = round(ranks[r]);
      if (r == 0) {
        EXPECT_EQ(s.code(), Code::kCorrupt) << which << ": " << s.what();
        EXPECT_EQ(s.peer(), 1) << which << ": " << s.what();
      }
    });
    EXPECT_EQ(ranks[0].stats().messages_ignored, 1U) << which;
  }
}

// A message that arrives twice counts once: a repeated card is not the card of the next layout.
TEST(Strangers, a_replayed_control_message_is_ignored) {
  Ranks ranks(tapped(kKey,
                     [&](Transport& line, Channel channel, ByteView bytes) {
                       if (channel != 0) return;
                       EXPECT_TRUE(line.send(0, 0, bytes, kStrange).ok());
                     }),
              options());
  ranks.each([&](Rank r) {
    for (const std::size_t n : {500, 600, 700}) {
      std::vector<float> values(n, 1.0F);
      const std::string key = std::to_string(n);
      const Tensor t{.key = key, .data = values.data(), .n = n};
      const Result<Ticket> ticket = ranks[r].sync({&t, 1});
      ASSERT_TRUE(ticket.ok());
      const Status s = ranks[r].wait(*ticket);
      EXPECT_TRUE(s.ok()) << s.what();
    }
  });
  EXPECT_GE(ranks[0].stats().messages_ignored, 3U);
}

// A repeated frame arrives before the awaited one: it is refused, and rank 1 is not blamed. Under gather it is the
// frame of the previous round, under server a frame of another chunk.
TEST(Strangers, a_replayed_frame_is_refused) {
  for (const char* strategy : {"gather", "server", "ring"}) {
    std::vector<std::uint8_t> last;
    int frames = 0;
    const auto again = [&](Transport& line, Channel channel, ByteView bytes) {
      if (channel == 0) return;
      if (frames++ == 1) {
        EXPECT_TRUE(line.send(0, channel, last, kStrange).ok());
      }
      last.assign(bytes.begin(), bytes.end());
    };
    SessionOptions o = options();
    o.strategy = strategy;
    Ranks ranks(tapped(kKey, again), o);
    ranks.each([&](Rank r) {
      Status s;
      for (int k = 0; k < 3 && s.ok(); ++k) s = round(ranks[r]);
      if (r != 0) return;
      EXPECT_EQ(s.code(), Code::kCorrupt) << strategy << ": " << s.what();
      EXPECT_EQ(s.peer(), Status::kNoPeer) << strategy << ": " << s.what();
    });
  }
}

TEST(Strangers, a_forged_frame_ends_the_job_without_naming_a_rank) {
  bool done = false;
  Ranks ranks(tapped(kKey,
                     [&](Transport& line, Channel channel, ByteView bytes) {
                       if (channel == 0 || std::exchange(done, true)) return;
                       Tagger stranger(Secret{9});
                       std::vector<std::uint8_t> forged(bytes.begin(), bytes.end());
                       FrameHeader h{.payload_bytes = bytes.size() - kFrameHeaderBytes - kFrameTrailerBytes};
                       EXPECT_TRUE(seal_frame(h, forged, stranger, 99, Cover::kFrame).ok());
                       EXPECT_TRUE(line.send(0, channel, forged, kStrange).ok());
                     }),
              options());
  ranks.each([&](Rank r) {
    const Status s = round(ranks[r]);
    if (r != 0) return;
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.what();
    EXPECT_EQ(s.peer(), Status::kNoPeer) << s.what();
  });
}

TEST(Strangers, an_oversized_frame_ends_the_job_without_naming_a_rank) {
  bool done = false;
  const std::vector<std::uint8_t> huge(100'000);
  Ranks ranks(tapped(kKey,
                     [&](Transport& line, Channel channel, ByteView) {
                       if (channel == 0 || std::exchange(done, true)) return;
                       EXPECT_TRUE(line.send(0, channel, huge, kStrange).ok());
                     }),
              options());
  ranks.each([&](Rank r) {
    const Status s = round(ranks[r]);
    if (r != 0) return;
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.what();
    EXPECT_EQ(s.peer(), Status::kNoPeer) << s.what();
  });
}

TEST(Strangers, an_unknown_value_of_authenticate_is_refused) {
  SessionOptions o = options();
  o.authenticate = "maybe";
  const Status s = Session::open(std::move(open_loop(1)[0]), o).status();
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_NE(s.what().find("auto, headers or payloads"), std::string::npos) << s.what();
}

TEST(Strangers, a_rank_that_differs_in_authenticate_is_named) {
  SessionOptions o = options();
  Ranks ranks(open_loop(2, kKey), o,
              [](Rank r, SessionOptions& mine) { mine.authenticate = r == 0 ? "payloads" : "headers"; });
  ranks.each([&](Rank r) {
    const Status s = round(ranks[r], 100'000);
    if (r != 0) return;
    EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
    EXPECT_NE(s.what().find("authenticate="), std::string::npos) << s.what();
  });
}

}  // namespace
}  // namespace tithe
