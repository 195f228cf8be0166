// SPDX-License-Identifier: Apache-2.0
#include "engine/peers/control.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kCode = kFrameHeaderBytes, kBlamed = kCode + 1;
const Farewell kGone{.code = Code::kPeerLost, .blamed = 2, .round = 7, .what = "rank 2 is gone"};

std::vector<std::uint8_t> farewell(const Farewell& f, const ControlIdentity& identity) {
  std::vector<std::uint8_t> frame(kControlBytes);
  frame.resize(write_farewell(f, identity, frame));
  return frame;
}

Status read(ByteView frame, const ControlIdentity& identity = {.me = 0, .world = 4}, Rank peer = 1) {
  ReplayWindow numbers;
  return read_control(frame, identity, peer, numbers).status();
}

// A farewell frame with some bytes replaced and a valid checksum.
std::vector<std::uint8_t> changed(std::size_t at, std::initializer_list<std::uint8_t> bytes) {
  std::vector<std::uint8_t> frame = farewell(kGone, {.me = 1, .world = 4});
  std::copy(bytes.begin(), bytes.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
  FrameHeader h = parse_frame(farewell(kGone, {.me = 1, .world = 4}))->header;
  EXPECT_TRUE(seal_frame(h, frame).ok());
  return frame;
}

TEST(Control, a_farewell_with_an_invalid_code_or_field_is_corrupt) {
  EXPECT_TRUE(read(changed(kCode, {6})).ok());
  EXPECT_TRUE(read(changed(kCode, {9})).ok()) << "kCancelled: a departure between rounds";
  for (const int code : {0, 10, 255}) {
    const Status s = read(changed(kCode, {static_cast<std::uint8_t>(code)}));
    EXPECT_EQ(s.code(), Code::kCorrupt) << code;
    EXPECT_EQ(s.peer(), 1);
  }
}

TEST(Control, blamed_must_be_a_rank_of_the_world_or_none) {
  EXPECT_TRUE(read(changed(kBlamed, {0xff, 0xff, 0xff, 0xff})).ok());
  EXPECT_TRUE(read(changed(kBlamed, {3, 0, 0, 0})).ok());
  EXPECT_FALSE(read(changed(kBlamed, {4, 0, 0, 0})).ok());
  EXPECT_FALSE(read(changed(kBlamed, {0, 0, 0, 0x80})).ok());
  EXPECT_FALSE(read(changed(kBlamed, {0xfe, 0xff, 0xff, 0xff})).ok());
}

TEST(Control, texts_of_peers_are_made_printable) {
  ReplayWindow numbers;
  const auto control =
      read_control(changed(kBlamed + 11, {0x1b, '[', 0xff, '\n'}), {.me = 0, .world = 4}, 1, numbers);
  ASSERT_TRUE(control.ok()) << control.status().what();
  EXPECT_EQ(control->farewell.what, "?[?  2 is gone");
  Farewell longer = kGone;
  longer.what = std::string(399, 'a') + "\u65e5";
  EXPECT_TRUE(read(farewell(longer, {.me = 1, .world = 4})).ok());
}

TEST(Control, a_message_with_another_ranks_number_is_corrupt) {
  const Status s = read(farewell(kGone, {.me = 2, .world = 4}));
  EXPECT_EQ(s.code(), Code::kCorrupt);
  EXPECT_EQ(s.peer(), 1);
}

TEST(Control, a_forged_message_is_refused_without_naming_a_rank) {
  Tags mine(Secret{1}, 1), theirs(Secret{1}, 1), strangers(Secret{2}, 1);
  const ControlIdentity reader{.me = 0, .world = 4, .tags = &mine};
  EXPECT_TRUE(read(farewell(kGone, {.me = 1, .world = 4, .tags = &theirs}), reader).ok());
  for (Tags* by : {&strangers, static_cast<Tags*>(nullptr)}) {
    const Status s = read(farewell(kGone, {.me = 1, .world = 4, .tags = by}), reader);
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(s.peer(), Status::kNoPeer);
  }
  EXPECT_FALSE(
      // A message of rank 2 on rank 1's connection.
      read(farewell(kGone, {.me = 2, .world = 4, .tags = &theirs}), reader).ok());
}

TEST(Control, a_repeated_message_is_refused) {
  Tags mine(Secret{1}, 1), theirs(Secret{1}, 1);
  const ControlIdentity reader{.me = 0, .world = 4, .tags = &mine};
  const auto first = farewell(kGone, {.me = 1, .world = 4, .tags = &theirs});
  const auto second = farewell(kGone, {.me = 1, .world = 4, .tags = &theirs});
  ReplayWindow numbers;
  EXPECT_TRUE(read_control(second, reader, 1, numbers).ok());
  EXPECT_TRUE(read_control(first, reader, 1, numbers).ok());  // it was overtaken by the second one
  EXPECT_FALSE(read_control(first, reader, 1, numbers).ok());
  EXPECT_FALSE(read_control(second, reader, 1, numbers).ok());
}

TEST(ReplayWindow, accepts_each_number_once_and_no_old_numbers) {
  ReplayWindow n;
  EXPECT_FALSE(n.take(0));
  for (const std::uint64_t k : {1, 3, 2, 200, 150, 137}) EXPECT_TRUE(n.take(k)) << k;
  for (const std::uint64_t k : {1, 2, 3, 200, 150, 137, 136, 4}) EXPECT_FALSE(n.take(k)) << k;
}

}  // namespace
}  // namespace tithe::engine
