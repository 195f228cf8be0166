// SPDX-License-Identifier: Apache-2.0
// Failures of the world: every survivor gets a Status that names the faulty rank, and keeps its residuals.
#include <deque>

#include "support/delayed_transport.h"
#include "support/law_cases.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

using testing::at;
using testing::DelayedTransport;
using testing::gradients;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::synchronise;
using testing::text;
using testing::Values;

constexpr std::size_t kSomeSizes[] = {9, 4097, 20'000};

struct Setting {
  const Strategy* strategy;
  int world;
  int lanes;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Strategy* s : all_strategies())
    for (const int world : {2, 3, 5})
      for (const int lanes : {0, 2}) all.push_back({s, world, lanes});
  return all;
}

std::string setting_label(const ::testing::TestParamInfo<Setting>& info) {
  return std::string(info.param.strategy->name) + "_" + std::to_string(info.param.world) + "_lanes" +
         std::to_string(info.param.lanes);
}

class FailureSuite : public ::testing::TestWithParam<Setting> {
 protected:
  int world() const { return GetParam().world; }
  SessionOptions options(const char* codec = "onebit") const {
    return {.codec = codec,
            .strategy = std::string(GetParam().strategy->name),
            .hosts = testing::hosts_of(world()),
            .lanes = GetParam().lanes,
            .min_values = 16,
            .timeout = std::chrono::milliseconds(5000)};
  }
  // A world in which one rank's transport is wrapped.
  Ranks ranks(Rank odd, const std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>& wrap,
              const SessionOptions& o, const testing::Change& change = {}) const {
    auto transports = open_loop(world());
    transports[at(odd)] = wrap(std::move(transports[at(odd)]));
    return Ranks(std::move(transports), o, change);
  }
};

// A rank dies after some of its frames were sent, early and late in the round.
TEST_P(FailureSuite, KilledRankIsNamedByEverySurvivor) {
  const Rank victim = world() / 2;
  for (int frames = 0, next = 1; frames < 100; frames = std::exchange(next, frames + next)) {
    auto cut = [&](std::unique_ptr<Transport> t) {
      return std::make_unique<DelayedTransport>(std::move(t), 1U, false, nullptr, frames);
    };
    Ranks all = ranks(victim, cut, options());
    std::vector<Status> status(at(world()));
    std::vector<Values> before(at(world())), after(at(world()));
    const auto begin = std::chrono::steady_clock::now();
    all.each([&](Rank r) {
      for (int round = 0; round < 2 && status[at(r)].ok(); ++round) {
        before[at(r)] = residuals(all[r], kSomeSizes);
        Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, round);
        status[at(r)] = synchronise(all[r], kSomeSizes, v);
      }
      after[at(r)] = residuals(all[r], kSomeSizes);
    });
    if (status[at(victim)].ok()) {  // it had sent everything before the kill
      ASSERT_GT(frames, 1);
      return;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    for (Rank r = 0; r < world(); ++r) {
      if (r == victim || status[at(r)].ok()) continue;  // ok: it no longer depended on the victim
      EXPECT_EQ(status[at(r)].code(), Code::kPeerLost) << text(status[at(r)]);
      EXPECT_EQ(status[at(r)].peer(), victim)
          << "rank " << r << " after " << frames << ": " << text(status[at(r)]);
      EXPECT_NE(status[at(r)].what().find("rank " + std::to_string(victim) + " is gone"), std::string::npos)
          << text(status[at(r)]);
      EXPECT_TRUE(same_bits(before[at(r)], after[at(r)])) << "rank " << r;
      Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
      EXPECT_EQ(text(synchronise(all[r], kSomeSizes, v)), text(status[at(r)]))
          << "later calls return the same Status";
    }
  }
}

// A rank that never joins the round: the others wait for the timeout and name it, whether or not its lane answers.
TEST_P(FailureSuite, AbsentRankTimesOut) {
  const Rank absent = world() - 1;
  SessionOptions o = options();
  o.timeout = o.patience = std::chrono::milliseconds(300);
  Ranks all(open_loop(world()), o);
  std::vector<Status> status(at(world()));
  all.each([&](Rank r) {
    Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
    status[at(r)] = synchronise(all[r], kSomeSizes, v);
    if (r == absent || !status[at(r)].ok()) return;
    v = gradients(kSomeSizes, testing::Data::kGaussian, r, 1);
    status[at(r)] = synchronise(all[r], kSomeSizes, v);
  });
  for (Rank r = 0; r < world(); ++r) {
    if (r == absent) continue;
    EXPECT_EQ(status[at(r)].code(), Code::kTimeout) << text(status[at(r)]);
    EXPECT_EQ(status[at(r)].peer(), absent) << "rank " << r << ": " << text(status[at(r)]);
  }
}

// For any disagreement, the rank that differs from the majority is named, with the difference.
TEST_P(FailureSuite, DifferingRankIsNamed) {
  const Rank odd = world() - 1;  // in a world of two, rank 0 wins the tie
  struct Case {
    const char* says;
    testing::Change change;
    std::size_t extra;
  };
  const Case cases[] = {
      {"codec topk instead of onebit",
       [&](Rank r, SessionOptions& o) {
         if (r == odd) o.codec = "topk";
       },
       0},
      {"codec onebit",
       [&](Rank r, SessionOptions& o) {
         if (r == odd) o.codec = "onebit:feedback=none";
       },
       0},
      {"strategy",
       [&](Rank r, SessionOptions& o) {
         if (r == odd) o.strategy = GetParam().strategy->name == "ring" ? "server" : "ring";
       },
       0},
      {"run 3 instead of 0",
       [&](Rank r, SessionOptions& o) {
         if (r == odd) o.run = 3;
       },
       0},
      {"partition of the bucket into parts",
       [&](Rank r, SessionOptions& o) {
         if (r == odd) o.part_values = 1000;
       },
       0},
      {"values", {}, 1},
  };
  for (const Case& c : cases) {
    Ranks all(open_loop(world()), options(), c.change);
    all.each([&](Rank r) {
      std::vector<float> v(5000 + (r == odd ? c.extra : 0));
      const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
      const Result<Ticket> ticket = all[r].sync({&t, 1});
      // A majority may have named the rank before this one calls sync().
      const Status s = ticket.ok() ? all[r].wait(*ticket) : ticket.status();
      EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
      EXPECT_EQ(s.peer(), odd) << text(s);
      EXPECT_NE(s.what().find(c.says), std::string::npos) << text(s);
    });
  }
}

// Modifies every outgoing frame of a kind with `change(frame)`.
class Tampering final : public testing::ForwardingTransport {
 public:
  using Change = std::function<void(Bytes)>;
  Tampering(std::unique_ptr<Transport> inner, bool control, Change change)
      : ForwardingTransport(std::move(inner)), control_(control), change_(std::move(change)) {}
  ~Tampering() override { inner_.reset(); }  // before the copies that it reads
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if ((channel == 0) != control_) return inner_->send(peer, channel, bytes, op);
    copies_.emplace_back(bytes.begin(), bytes.end());
    change_(copies_.back());
    return inner_->send(peer, channel, copies_.back(), op);
  }

 private:
  std::deque<std::vector<std::uint8_t>> copies_;
  const bool control_;
  const Change change_;
};

Tampering::Change flipped(std::size_t offset) {
  return [offset](Bytes frame) {
    if (frame.size() > offset) frame[offset] ^= 0x10;
  };
}

TEST_P(FailureSuite, OtherVersionIsNamed) {
  const Rank odd = world() - 1;
  constexpr std::size_t kVersionAt = 4;
  Ranks all = ranks(
      odd, [&](auto t) { return std::make_unique<Tampering>(std::move(t), true, flipped(kVersionAt)); },
      options());
  all.each([&](Rank r) {
    Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
    const Status s = synchronise(all[r], kSomeSizes, v);
    if (r == odd) return;  // this rank accepts the others' frames; it receives the failure report, or nothing
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), odd) << text(s);
    EXPECT_NE(s.what().find("version"), std::string::npos) << text(s);
  });
}

TEST_P(FailureSuite, CorruptFrameIsNamed) {
  const Rank odd = world() - 1;
  Ranks all = ranks(
      odd,
      [&](auto t) { return std::make_unique<Tampering>(std::move(t), false, flipped(kFrameHeaderBytes)); },
      options());
  all.each([&](Rank r) {
    Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
    const Status s = synchronise(all[r], kSomeSizes, v);
    if (r == odd && s.ok()) return;  // it was complete before the failure report
    EXPECT_EQ(s.code(), Code::kCorrupt) << text(s);
    EXPECT_EQ(s.peer(), odd) << text(s);
    EXPECT_NE(s.what().find("checksum"), std::string::npos) << text(s);
  });
}

// A payload that no encoder writes, in a valid frame: combining it with other payloads must not hide it.
TEST_P(FailureSuite, ForgedPayloadIsNamed) {
  const Rank odd = 0;  // first in every order in which frames are combined
  const auto forge = [](Bytes frame) {
    const Result<ParsedFrame> parsed = parse_frame(frame);
    if (!parsed.ok() || parsed->header.codec != id_of(*find_codec("fp8_shared")) || parsed->header.phase != 0)
      return;
    frame[kFrameHeaderBytes] = frame[kFrameHeaderBytes + 1] = 0;  // scales of no rank
    ASSERT_TRUE(seal_frame(parsed->header, frame).ok());
  };
  Ranks all = ranks(
      odd, [&](auto t) { return std::make_unique<Tampering>(std::move(t), false, forge); },
      options("fp8_shared"));
  all.each([&](Rank r) {
    Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
    const Status s = synchronise(all[r], kSomeSizes, v);
    if (r == odd && s.ok()) return;  // it was complete before the failure report
    EXPECT_EQ(s.code(), Code::kCorrupt) << text(s);
    EXPECT_EQ(s.peer(), odd) << text(s);
    EXPECT_NE(s.what().find("fp8_shared: "), std::string::npos) << text(s);
  });
}

// A rank that leaves during a round is named, even if other ranks leave as a consequence.
TEST_P(FailureSuite, LeavingRankIsNamed) {
  const Rank leaver = 0;
  Ranks all(open_loop(world()), options());
  all.each([&](Rank r) {
    Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, 0);
    Status s = synchronise(all[r], kSomeSizes, v);
    EXPECT_TRUE(s.ok()) << text(s);
    if (r == leaver) return all.close(r);
    for (int round = 1; round < 3 && s.ok(); ++round) s = synchronise(all[r], kSomeSizes, v);
    EXPECT_EQ(s.code(), Code::kPeerLost) << text(s);
    EXPECT_EQ(s.peer(), leaver) << text(s);
    all.close(r);
  });
}

TEST_P(FailureSuite, CancelEndsAWait) {
  Ranks all(open_loop(world()), options());
  std::vector<float> v(5000);
  const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
  const Result<Ticket> ticket = all[0].sync({&t, 1});  // no other rank joins
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all[0].cancel();
  });
  EXPECT_EQ(all[0].wait(*ticket).code(), Code::kCancelled);
  other.join();
  EXPECT_EQ(all[0].commit().code(), Code::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(All, FailureSuite, ::testing::ValuesIn(settings()), setting_label);

}  // namespace
}  // namespace tithe
