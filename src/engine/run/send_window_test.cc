// SPDX-License-Identifier: Apache-2.0
#include "engine/run/send_window.h"

#include <gtest/gtest.h>

#include <array>

namespace tithe::engine {
namespace {

constexpr int kWorld = 4;

SendWindow send_window(std::size_t window, std::size_t rotation, Rank me = 0) {
  SendWindow p({.window = window, .rotation = rotation}, me, kWorld);
  constexpr std::array<std::size_t, kWorld> kFrames = {100, 100, 100, 100};
  p.expect(kFrames, 100);
  return p;
}

// The sends that may leave immediately.
std::vector<SendWindow::Send> all_now(SendWindow& p) {
  std::vector<SendWindow::Send> out;
  while (const auto s = p.next()) out.push_back(*s);
  return out;
}

std::vector<Rank> peers(const std::vector<SendWindow::Send>& sends) {
  std::vector<Rank> out;
  for (const SendWindow::Send& s : sends) out.push_back(s.peer);
  return out;
}

TEST(SendWindow, windowed_with_rotation) {
  SendWindow p = send_window(1000, 1);
  for (OpId op = 0; op < 9; ++op) p.offer({0, 1, op, static_cast<Rank>(1 + op % 3), 400});
  std::vector<SendWindow::Send> now = all_now(p);
  EXPECT_EQ(peers(now), (std::vector<Rank>{1, 1}));
  EXPECT_EQ(p.under_way(), 800U);
  p.done(now[0]);
  EXPECT_EQ(peers(all_now(p)), std::vector<Rank>{1});
}

TEST(SendWindow, windowed_per_peer_without_rotation) {
  SendWindow p = send_window(1000, 0);
  for (OpId op = 0; op < 9; ++op) p.offer({0, 1, op, static_cast<Rank>(1 + op % 3), 400});
  EXPECT_EQ(all_now(p).size(), 6U);
  EXPECT_EQ(p.under_way(), 2400U);
}

TEST(SendWindow, windowed_a_longer_frame_is_sent_alone) {
  for (const std::size_t rotation : {1, 0}) {
    SendWindow p = send_window(1, rotation);
    p.offer({0, 1, 1, 1, 5000});
    p.offer({0, 1, 2, 1, 0});
    std::vector<SendWindow::Send> now = all_now(p);
    ASSERT_EQ(now.size(), 1U);
    EXPECT_EQ(now[0].op, 1U);
    p.done(now[0]);
    EXPECT_EQ(all_now(p).size(), 1U);
  }
}

// In turn t, rank r sends to rank r + 1 + t, so no rank receives from two ranks.
TEST(SendWindow, turned_no_two_ranks_send_to_the_same_peer) {
  std::vector<SendWindow> all;
  for (Rank r = 0; r < kWorld; ++r) {
    all.push_back(send_window(10, 1, r));
    OpId op = 0;
    for (Rank to = kWorld - 1; to >= 0; --to)
      for (int k = 0; k < 3 && to != r; ++k) all.back().offer({0, 1, op++, to, 10});
  }
  for (int turn = 0; turn < 3 * (kWorld - 1); ++turn) {
    std::array<int, kWorld> fed{};
    for (Rank r = 0; r < kWorld; ++r) {
      SendWindow& p = all[static_cast<std::size_t>(r)];
      const std::vector<SendWindow::Send> now = all_now(p);
      ASSERT_EQ(now.size(), 1U);
      EXPECT_EQ(now[0].peer, (r + 1 + turn % (kWorld - 1)) % kWorld);
      ++fed[static_cast<std::size_t>(now[0].peer)];
      p.done(now[0]);
    }
    EXPECT_EQ(fed, (std::array<int, kWorld>{1, 1, 1, 1}));
  }
}

// At most `rotation` peers receive at a time. The next peer begins when one has received all its bytes in flight.
TEST(SendWindow, turned_at_most_rotation_peers_receive_at_a_time) {
  SendWindow p = send_window(10, 2);
  OpId op = 0;
  for (int k = 0; k < 2; ++k)
    for (Rank to = 1; to < kWorld; ++to) p.offer({0, 1, op++, to, 10});
  const std::vector<SendWindow::Send> now = all_now(p);
  EXPECT_EQ(peers(now), (std::vector<Rank>{1, 2}));
  p.done(now[1]);
  EXPECT_EQ(peers(all_now(p)), std::vector<Rank>{3});
}

// Frames that fit into one window together are sent together.
TEST(SendWindow, turned_small_frames_are_sent_together) {
  SendWindow p = send_window(100, 1);
  for (Rank to = 1; to < kWorld; ++to) p.offer({0, 1, static_cast<OpId>(to), to, 30});
  EXPECT_EQ(peers(all_now(p)), (std::vector<Rank>{1, 2, 3}));
}

// Small frames to one peer are sent in one turn.
TEST(SendWindow, turned_a_turn_lasts_a_window) {
  SendWindow p = send_window(100, 1);
  OpId op = 0;
  for (int k = 0; k < 5; ++k)
    for (Rank to = 1; to < kWorld; ++to) p.offer({0, 1, op++, to, 50});
  std::vector<Rank> order;
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<SendWindow::Send> now = all_now(p);
    for (const Rank r : peers(now)) order.push_back(r);
    for (const SendWindow::Send& s : now) p.done(s);
  }
  EXPECT_EQ(order, (std::vector<Rank>{1, 1, 2, 2, 3, 3}));
}

TEST(SendWindow, turned_a_peer_without_frames_is_skipped) {
  SendWindow p = send_window(10, 1);
  p.offer({0, 1, 1, 3, 10});
  p.offer({0, 1, 2, 1, 10});
  std::vector<SendWindow::Send> now = all_now(p);
  ASSERT_EQ(peers(now), std::vector<Rank>{1});
  p.done(now[0]);
  EXPECT_EQ(peers(all_now(p)), std::vector<Rank>{3});
}

TEST(SendWindow, ordered_by_part_and_not_by_arrival) {
  SendWindow p = send_window(10, 1);
  for (const std::uint64_t order : {5U, 2U, 9U, 3U}) p.offer({0, order, order, 1, 10});
  std::vector<std::uint64_t> left;
  while (const auto s = p.next()) {
    left.push_back(s->order);
    p.done(*s);
  }
  EXPECT_EQ(left, (std::vector<std::uint64_t>{2, 3, 5, 9}));
}

TEST(SendWindow, ordered_urgent_frames_leave_first) {
  SendWindow p = send_window(10, 1);
  p.offer({0, 1, 1, 1, 10});
  p.offer({0, 2, 2, 1, 10});
  p.offer({7, 9, 3, 1, 10});
  std::vector<OpId> left;
  while (const auto s = p.next()) {
    left.push_back(s->op);
    p.done(*s);
  }
  EXPECT_EQ(left, (std::vector<OpId>{3, 1, 2}));
}

// The receiver may not have begun the part of an urgent frame, so a frame of an earlier part overtakes it.
TEST(SendWindow, first_precedes_more_urgent_frames) {
  SendWindow p = send_window(10, 1);
  p.offer({7, 9, 1, 1, 10});
  p.offer({7, 9, 2, 1, 10});
  EXPECT_EQ(all_now(p).size(), 1U);
  p.offer({0, 3, 3, 1, 10});
  p.offer({0, 2, 4, 1, 10});
  const std::vector<SendWindow::Send> now = all_now(p);
  ASSERT_EQ(now.size(), 1U);
  EXPECT_EQ(now[0].op, 4U);
}

// A window full of later parts does not block a frame of an earlier part.
TEST(SendWindow, first_leaves_although_the_windows_are_full) {
  for (const std::size_t rotation : {1, 0}) {
    SendWindow p = send_window(10, rotation);
    for (Rank to = 1; to < kWorld; ++to) p.offer({0, 7, static_cast<OpId>(to), to, 10});
    const std::vector<SendWindow::Send> before = all_now(p);
    EXPECT_EQ(before.size(), rotation == 1 ? 1U : 3U);
    p.offer({0, 8, 20, 2, 10});
    EXPECT_TRUE(all_now(p).empty());
    p.offer({0, 6, 21, 2, 10});
    p.offer({0, 6, 22, 3, 10});
    const std::vector<SendWindow::Send> now = all_now(p);
    ASSERT_EQ(now.size(), 1U)
        << "the second frame precedes part 7, but not the frame of part 6, which is in flight";
    EXPECT_EQ(now[0].op, 21U);
    p.done(now[0]);
    ASSERT_EQ(all_now(p).size(), 1U);
  }
}

TEST(SendWindow, drained_leaves_no_trace_of_a_frame) {
  SendWindow p = send_window(10, 1);
  for (OpId op = 0; op < 6; ++op) p.offer({0, 1, op, 1, 10});
  const std::vector<SendWindow::Send> now = all_now(p);
  EXPECT_EQ(p.waiting(), 5U);
  p.drop();
  EXPECT_EQ(p.waiting(), 0U);
  p.done(now[0]);
  EXPECT_EQ(p.under_way(), 0U);
  EXPECT_FALSE(p.has_next());
}

TEST(SendWindow, parses_pacer_texts_and_refuses_invalid_ones) {
  const auto same = [](std::string_view text, const Pacing& pacing) {
    const Result<Pacing> got = parse_pacing(text);
    return got.ok() && *got == pacing;
  };
  EXPECT_TRUE(same("off", {}));
  EXPECT_TRUE(same("window=262144", {.window = 262144, .rotation = 0}));
  EXPECT_TRUE(same("window=1,rotation=off", {.window = 1, .rotation = 0}));
  EXPECT_TRUE(same("window=4096,rotation=3", {.window = 4096, .rotation = 3}));
  EXPECT_TRUE(same("rotation=on,window=65536", {.window = 65536, .rotation = 1}));
  for (const char* text :
       {"", "on", "window", "window=", "window=0", "window=-1", "window=64k", "window=99999999999999999999",
        "window=1,", ",window=1", "rotation=on", "window=1,rotation=yes", "window=1,window=2", "off,window=1",
        "window=1,rotation=on,rotation=on", "window=1;rotation=on", "window=1,rotation=0",
        "window=1,rotation=-2", "window=1,rotation="}) {
    const Result<Pacing> got = parse_pacing(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.status().code(), Code::kInvalid);
    EXPECT_NE(got.status().what().find("window=BYTES"), std::string::npos) << got.status().what();
  }
}

}  // namespace
}  // namespace tithe::engine
