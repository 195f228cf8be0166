// SPDX-License-Identifier: Apache-2.0
// A rank that sends valid frames with payloads that no encoder writes: every other rank names it, for any codec,
// strategy and claimed origin of the frame.
#include <gtest/gtest.h>

#include <map>

#include "support/forwarding_transport.h"
#include "support/law_cases.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

using testing::Combination;
using testing::Ranks;
using testing::text;

enum class Forgery { kNothing, kPayload, kSource };

// Between a session and its transport: modifies the frames that this rank creates, and seals them again.
class Forger final : public testing::ForwardingTransport {
 public:
  Forger(std::unique_ptr<Transport> inner, Forgery what)
      : ForwardingTransport(std::move(inner)), what_(what) {}
  ~Forger() override { inner_.reset(); }        // before the frames that it reads
  ByteView key() const override { return {}; }  // without tags the frame itself names its sender
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    const bool as_it_is = channel == 0 || what_ == Forgery::kNothing;
    return inner_->send(peer, channel, as_it_is ? bytes : forged(bytes, op), op);
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
  std::map<OpId, std::vector<std::uint8_t>> kept_;  // until the transport is destroyed
};

constexpr std::size_t kValues = 5000;

std::vector<Status> run(const Combination& c, Rank forger, Forgery what) {
  auto transports = testing::open_world(c.transport, c.world);
  for (Rank r = 0; r < c.world; ++r) {
    auto& its = transports[static_cast<std::size_t>(r)];
    its = std::make_unique<Forger>(std::move(its), r == forger ? what : Forgery::kNothing);
  }
  Ranks ranks(std::move(transports), {.strategy = std::string(c.strategy->name),
                                      .hosts = c.hosts,
                                      .spec = c.law.spec,
                                      .rules = c.law.rules});
  std::vector<Status> statuses(static_cast<std::size_t>(c.world));
  ranks.each([&](Rank r) {
    Status& status = statuses[static_cast<std::size_t>(r)];
    for (int round = 0; round < 2 && status.ok(); ++round) {
      testing::Values grad = testing::gradients({&kValues, 1}, testing::Data::kGaussian, r, round);
      status = testing::synchronise(ranks[r], {&kValues, 1}, grad);
    }
  });
  return statuses;
}

class ForgedFramesSuite : public ::testing::TestWithParam<Combination> {};

// Modified bytes may be valid by chance, and NaN may drop the round; a rejected payload is attributed to its creator.
TEST_P(ForgedFramesSuite, RefusedPayloadNamesItsSource) {
  for (Rank forger = 0; forger < GetParam().world; ++forger) {
    const std::vector<Status> statuses = run(GetParam(), forger, Forgery::kPayload);
    for (Rank r = 0; r < GetParam().world; ++r) {
      const Status& s = statuses[static_cast<std::size_t>(r)];
      if (r == forger || s.ok()) continue;
      EXPECT_EQ(s.code(), Code::kCorrupt) << text(s);
      EXPECT_EQ(s.peer(), forger) << "rank " << r << ": " << text(s);
    }
  }
}

TEST_P(ForgedFramesSuite, FrameWithAFalseSourceNamesItsSender) {
  const std::vector<Status> statuses = run(GetParam(), 1, Forgery::kSource);
  for (const Rank r : {0, 2}) {
    EXPECT_EQ(statuses[static_cast<std::size_t>(r)].code(), Code::kCorrupt);
    EXPECT_EQ(statuses[static_cast<std::size_t>(r)].peer(), 1) << text(statuses[static_cast<std::size_t>(r)]);
  }
}

// A rank that receives a failure report withdraws its unsent frames: the long ones, not the short ones. Other ranks
// must not mistake its remaining frames for the withdrawn ones and accuse it.
class ForgedOverTransports : public ::testing::TestWithParam<std::string> {};

TEST_P(ForgedOverTransports, RanksThatGaveUpAreNotBlamed) {
  for (const Strategy* strategy : all_strategies()) {
    if (strategy->between == nullptr) continue;
    for (Rank forger = 0; forger < 4; ++forger) {
      const std::vector<Status> statuses =
          run({{"onebit", *parse_spec("onebit")}, strategy, GetParam(), 4, true, "2x2"}, forger,
              Forgery::kSource);
      for (Rank r = 0; r < 4; ++r) {
        if (r == forger) continue;
        const Status& s = statuses[static_cast<std::size_t>(r)];
        EXPECT_EQ(s.code(), Code::kCorrupt) << strategy->name << ", rank " << r << ": " << text(s);
        EXPECT_EQ(s.peer(), forger) << strategy->name << ", rank " << r << ": " << text(s);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForgedOverTransports, ::testing::ValuesIn(testing::transport_examples()),
                         [](const auto& example) { return testing::in_a_name(example.param); });

std::vector<Combination> three_ranks() {
  std::vector<Combination> all;
  for (Combination& c : testing::all_combinations())
    if (!c.between_processes && c.world == 3) all.push_back(std::move(c));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loop, ForgedFramesSuite, ::testing::ValuesIn(three_ranks()), testing::label);

}  // namespace
}  // namespace tithe
