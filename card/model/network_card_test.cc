// SPDX-License-Identifier: Apache-2.0
// The twin against the readable model of card/bench/frames.h, which the Verilated card is held against too, and against
// what card/docs/card_rtl.md promises of frames.
#include "card/model/network_card.h"

#include <gtest/gtest.h>

#include <map>

#include "card/bench/mutants.h"
#include "card/bench/promises.h"
#include "card/bench/twin.h"
#include "card/model/capture.h"

namespace tithe::card {
namespace {

using Frame = ::bench::Bytes;

::bench::CardConfig some_config(::bench::Random& random, int round) {
  ::bench::CardConfig c;
  c.on = round % 16 != 15;
  c.exact = round % 3 != 2;
  c.setting = ::bench::kSettings[static_cast<std::size_t>(round) % std::size(::bench::kSettings)];
  c.dscp = round % 4 ? 10 : static_cast<unsigned>(random() % 64);
  c.least = round % 2 ? 64 : random() % 300;
  return c;
}

TEST(Card, MatchesTheModelOnFramesAndMutants) {
  ::bench::Random random(1);
  std::map<::bench::Event, int> to_wire, to_host;
  for (int round = 0; round < 400; ++round) {
    const ::bench::CardConfig c = some_config(random, round);
    ::bench::Twins twins(c);
    for (int i = 0; i < 40; ++i) {
      Frame f = ::bench::some_frame(random, c, true);
      if (i % 2) f = ::bench::mutant(random, std::move(f));
      ASSERT_TRUE(twins.agree(Direction::kToWire, f)) << "round " << round << ", frame " << i;
      const ::bench::Outcome packed = ::bench::pack(f, c);
      ++to_wire[packed.event];
      Frame w = packed.frame;
      if (i % 3) w = ::bench::mutant(random, std::move(w));
      ASSERT_TRUE(twins.agree(Direction::kToHost, w)) << "round " << round << ", frame " << i;
      ++to_host[::bench::unpack(w, c).event];
    }
  }
  for (const auto event : {::bench::kPassed, ::bench::kPacked, ::bench::kInexact, ::bench::kGrown})
    EXPECT_GT(to_wire[event], 20) << event;
  for (const auto event : {::bench::kPassed, ::bench::kPacked, ::bench::kDropped})
    EXPECT_GT(to_host[event], 20) << event;
}

TEST(Card, KeepsTheDocumentedPromises) {
  Frame packed;
  const auto one = [](const ::bench::Promise& p, Direction direction) {
    Card card(::bench::twin_config(p.config), inceptionn::kSimd);
    const Outcome got = card.pass(direction, p.frame);
    EXPECT_EQ(static_cast<int>(got.event), static_cast<int>(p.event)) << p.what;
    const Counters& n = card.counters(direction);
    EXPECT_EQ(n.passed + n.packed + n.dropped, 1U) << p.what;
    EXPECT_EQ(n.bytes_in, p.frame.size());
    EXPECT_EQ(n.bytes_out, got.frame.size());
    const bool untouched = got.event != Event::kPacked && got.event != Event::kDropped;
    EXPECT_TRUE(!untouched || std::ranges::equal(got.frame, p.frame)) << p.what;
    return Frame(got.frame.begin(), got.frame.end());
  };
  for (const ::bench::Promise& p : ::bench::promises_to_wire()) {
    const Frame out = one(p, Direction::kToWire);
    if (p.event != ::bench::kPacked) continue;
    EXPECT_LT(out.size(), p.frame.size()) << p.what;
    if (packed.empty()) packed = out;
    Card other(Config{}, inceptionn::kSimd);
    const Outcome back = other.pass(Direction::kToHost, out);
    ASSERT_EQ(back.event, Event::kPacked) << p.what;
    const std::size_t end = headers(p.frame)->end;
    EXPECT_TRUE(!p.config.exact || std::ranges::equal(back.frame, ByteView(p.frame).first(end))) << p.what;
  }
  for (const ::bench::Promise& p : ::bench::promises_to_host(packed)) one(p, Direction::kToHost);
}

TEST(Card, StreamIsUnchangedByAnySegmentation) {
  ::bench::Random random(7);
  const Frame stream = ::bench::kept_floats(50000);
  Frame arrived(stream.size(), 0xee);
  Card here(Config{}, inceptionn::kSimd), there(Config{}, inceptionn::kSimd);
  for (const auto& [first, bytes] : ::bench::segments(random, stream)) {
    ::bench::Recipe r;
    r.sequence = static_cast<std::uint32_t>(first);
    r.payload = bytes;
    const Frame f = r.make();
    const Outcome wire = here.pass(Direction::kToWire, f);
    const Outcome back = there.pass(Direction::kToHost, wire.frame);
    ASSERT_TRUE(std::ranges::equal(back.frame, f));
    std::copy(back.frame.begin() + 54, back.frame.end(),
              arrived.begin() + static_cast<std::ptrdiff_t>(first));
  }
  EXPECT_EQ(arrived, stream);
  EXPECT_GT(here.counters(Direction::kToWire).packed, 10U);
  EXPECT_GT(here.counters(Direction::kToWire).inexact, 10U);
  EXPECT_EQ(there.counters(Direction::kToHost).dropped, 0U);
}

TEST(Card, SumsLikeTheModel) {
  ::bench::Random random(3);
  for (std::size_t n = 0; n < 200; ++n) {
    Frame bytes(n);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(n % 5 ? random() : n % 2 ? 0xff : 0);
    EXPECT_EQ(sum_of(bytes), ::bench::fold(::bench::words(bytes, 0, n))) << n;
  }
}

TEST(Capture, ReturnsAddedPackets) {
  std::vector<std::uint8_t> file;
  begin_capture(file);
  EXPECT_TRUE(read_capture(file).ok());
  EXPECT_EQ(read_capture(file)->size(), 0U);
  const Frame first(60, 7), second(1514, 9);
  add_to_capture(file, 1'700'000'000'123'456'789, first);
  add_to_capture(file, 1'700'000'001'000'000'001, second);
  const auto got = read_capture(file);
  ASSERT_TRUE(got.ok()) << got.status().what();
  ASSERT_EQ(got->size(), 2U);
  EXPECT_EQ((*got)[0].ns, 1'700'000'000'123'456'789U);
  EXPECT_EQ((*got)[1].ns, 1'700'000'001'000'000'001U);
  EXPECT_TRUE(std::ranges::equal((*got)[1].frame, second));
}

TEST(Capture, ReadsBothByteOrdersAndMicroseconds) {
  // Big-endian, microseconds: one frame of 3 bytes at 5.000007 s.
  const std::vector<std::uint8_t> file = {0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0,
                                          0,    0,    4,    0,    0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0,
                                          0,    7,    0,    0,    0, 3, 0, 0, 0, 3, 1, 2, 3};
  const auto got = read_capture(file);
  ASSERT_TRUE(got.ok()) << got.status().what();
  ASSERT_EQ(got->size(), 1U);
  EXPECT_EQ((*got)[0].ns, 5'000'007'000U);
  EXPECT_EQ((*got)[0].frame.size(), 3U);
}

TEST(Capture, RefusesOtherFiles) {
  std::vector<std::uint8_t> file;
  begin_capture(file);
  add_to_capture(file, 1, Frame(60, 7));
  const std::size_t head_alone = 24;
  for (std::size_t n = 0; n < file.size(); ++n)
    EXPECT_EQ(read_capture(ByteView(file).first(n)).ok(), n == head_alone) << n;
  const auto refused = [&](std::size_t at, std::uint8_t value) {
    auto other = file;
    other[at] = value;
    return read_capture(other).status().code() == Code::kCorrupt;
  };
  EXPECT_TRUE(refused(0, 0));       // the number
  EXPECT_TRUE(refused(20, 101));    // the kind of link
  EXPECT_TRUE(refused(24 + 8, 9));  // a frame that was cut
  EXPECT_TRUE(refused(24 + 11, 0xff));
}

}  // namespace
}  // namespace tithe::card
