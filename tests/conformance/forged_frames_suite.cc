// SPDX-License-Identifier: Apache-2.0
// A rank whose frames are whole but whose payloads no encoder wrote: every other rank names it, whatever the codec, the
// strategy and the frame's own word for who made it.
#include <gtest/gtest.h>

#include <map>

#include "support/forwarding_transport.h"
#include "support/law_cases.h"
#include "tithe/frame.h"

namespace tithe {
namespace {

using testing::Combination;
using testing::Ranks;
using testing::text;

enum class Forgery { kPayload, kSource };

// Between a session and its transport: changes what this rank makes, and seals it anew.
class Forger final : public testing::ForwardingTransport {
 public:
  Forger(std::unique_ptr<Transport> inner, Forgery what)
      : ForwardingTransport(std::move(inner)), what_(what) {}
  ~Forger() override { inner_.reset(); }  // before the frames that it reads
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    return inner_->send(peer, channel, channel == 0 ? bytes : forged(bytes, op), op);
  }

 private:
  ByteView forged(ByteView bytes, OpId op) {
    const Result<ParsedFrame> parsed = parse_frame(bytes);
    if (!parsed.ok() || parsed->header.source != rank()) return bytes;
    FrameHeader header = parsed->header;
    std::vector<std::uint8_t>& copy = kept_[op];
    copy.assign(bytes.begin(), bytes.end());
    if (what_ == Forgery::kSource) {
      header.source = static_cast<std::uint16_t>((rank() + 1) % world());
    } else {
      const std::size_t table = header.flags == kFlagConcat ? std::size_t{8} * header.parts : 0;
      const std::size_t own = header.flags == kFlagConcat ? wire_size(parsed->payload) : header.payload_bytes;
      for (std::size_t i = 0; i < own; ++i) copy[kFrameHeaderBytes + table + i] = 0xff;
    }
    EXPECT_TRUE(seal_frame(header, copy).ok());
    return copy;
  }
  static std::size_t wire_size(ByteView lengths) { return lengths[0] | std::size_t{lengths[1]} << 8; }

  const Forgery what_;
  std::map<OpId, std::vector<std::uint8_t>> kept_;  // until the transport goes
};

constexpr std::size_t kValues = 5000;

std::vector<Status> run(const Combination& c, Rank forger, Forgery what) {
  auto transports = open_loop(c.world);
  auto& its = transports[static_cast<std::size_t>(forger)];
  its = std::make_unique<Forger>(std::move(its), what);
  Ranks ranks(std::move(transports), {.spec = c.law.spec,
                                      .strategy = std::string(c.strategy->name),
                                      .rules = c.law.rules,
                                      .hosts = c.hosts});
  std::vector<Status> said(static_cast<std::size_t>(c.world));
  ranks.each([&](Rank r) {
    Status& status = said[static_cast<std::size_t>(r)];
    for (int round = 0; round < 2 && status.ok(); ++round) {
      testing::Values grad = testing::gradients({&kValues, 1}, testing::Data::kGaussian, r, round);
      status = testing::synchronise(ranks[r], {&kValues, 1}, grad);
    }
  });
  return said;
}

class ForgedFramesSuite : public ::testing::TestWithParam<Combination> {};

// Bytes that happen to be legal may pass, and NaN may drop the round; what is refused has its maker's name on it.
TEST_P(ForgedFramesSuite, APayloadThatIsRefusedNamesItsMaker) {
  if (GetParam().strategy->between != nullptr)
    GTEST_SKIP() << "may name a rank of the same host: docs/strategies.md, \"Several ranks on a host\"";
  for (Rank forger = 0; forger < GetParam().world; ++forger) {
    const std::vector<Status> said = run(GetParam(), forger, Forgery::kPayload);
    for (Rank r = 0; r < GetParam().world; ++r) {
      const Status& s = said[static_cast<std::size_t>(r)];
      if (r == forger || s.ok()) continue;
      EXPECT_EQ(s.code(), Code::kCorrupt) << text(s);
      EXPECT_EQ(s.peer(), forger) << "rank " << r << ": " << text(s);
    }
  }
}

TEST_P(ForgedFramesSuite, AFrameInAnothersNameNamesItsSender) {
  const std::vector<Status> said = run(GetParam(), 1, Forgery::kSource);
  for (const Rank r : {0, 2}) {
    EXPECT_EQ(said[static_cast<std::size_t>(r)].code(), Code::kCorrupt);
    EXPECT_EQ(said[static_cast<std::size_t>(r)].peer(), 1) << text(said[static_cast<std::size_t>(r)]);
  }
}

std::vector<Combination> three_ranks() {
  std::vector<Combination> all;
  for (Combination& c : testing::all_combinations())
    if (!c.between_processes && c.world == 3) all.push_back(std::move(c));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loop, ForgedFramesSuite, ::testing::ValuesIn(three_ranks()), testing::label);

}  // namespace
}  // namespace tithe
