// SPDX-License-Identifier: Apache-2.0
// Failure attribution (docs/reference/errors.md): fault x phase of a round x strategy x world. Every survivor returns
// in time, all name the same rank (the faulty one or none), and all have committed the same rounds.
#include <fmt/format.h>

#include "conformance/faulty_net.h"
#include "support/law_cases.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::at;
using testing::Faulty;
using testing::FaultyNet;
using testing::gradients;
using testing::residuals;
using testing::same_bits;
using testing::synchronise;
using testing::text;
using testing::Values;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSomeSizes[] = {9, 4097, 20'000};
constexpr auto kTimeout = 1000ms;
constexpr std::uint32_t kFaultyRound = 1;

enum class Fault { kKilled, kFrozen, kLeaves, kCorrupt, kIsolated, kShortCut, kLongCut, kSlow };
constexpr const char* kFaultNames[] = {"killed",   "frozen",    "leaves",   "corrupt",
                                       "isolated", "cut_short", "cut_long", "slow"};

enum class Phase { kFirstSend, kMiddle, kLastSend, kCommits, kHalfCommitted };
constexpr Phase kPhases[] = {Phase::kFirstSend, Phase::kMiddle, Phase::kLastSend, Phase::kCommits,
                             Phase::kHalfCommitted};
constexpr const char* kPhaseNames[] = {"before its first send", "in the middle", "after its last send",
                                       "before it says done", "after it said done to one"};

struct Setting {
  Fault fault;
  const Strategy* strategy;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (int f = 0; f <= static_cast<int>(Fault::kSlow); ++f)
    for (const Strategy* s : all_strategies()) all.push_back({static_cast<Fault>(f), s});
  return all;
}

struct Outcome {
  std::vector<Status> status;  // by rank
  std::vector<int> committed;  // rounds
  std::vector<char> kept;      // residuals equal those of the last commit
  Clock::duration longest{};   // from the fault to the last survivor's return
};

// One world: the fault happens to `victim` in its second round.
Outcome run_world(Fault fault, Phase phase, const Strategy& strategy, int world, Rank victim) {
  const auto net = std::make_shared<FaultyNet>(world);
  std::vector<std::unique_ptr<Session>> sessions(at(world));
  std::atomic<bool> happened{false};
  std::atomic<Clock::rep> since{0};
  int sends_before = 0, sends = 0, dones = 0;  // of the victim's communication lane
  const auto happen = [&] {
    if (happened.exchange(true)) return;
    since = Clock::now().time_since_epoch().count();
    switch (fault) {
      case Fault::kKilled:
        return net->kill(victim);
      case Fault::kFrozen:
        return net->freeze(victim, true);
      case Fault::kLeaves:
        return sessions[at(victim)]->cancel();
      case Fault::kCorrupt:
        return net->corrupt(victim);
      case Fault::kSlow:
        return net->slow(victim, 60e3);
      default:
        return net->cut(victim, true);
    }
  };
  const Faulty::Hook hook = [&](Faulty::When when, Channel channel, ByteView bytes) {
    const Result<ParsedFrame> frame = parse_frame(bytes);
    if (!frame.ok()) return;
    const bool before = when == Faulty::When::kBefore;
    if (channel != 0 && frame->header.round + 1 == kFaultyRound && before) ++sends_before;
    if (channel != 0 && frame->header.round == kFaultyRound) {
      if (before && ((phase == Phase::kFirstSend && sends == 0) ||
                     (phase == Phase::kMiddle && sends == sends_before / 2)))
        happen();
      if (before) ++sends;
      if (!before && phase == Phase::kLastSend && sends == sends_before) happen();
    }
    constexpr std::uint8_t kDone = 5;
    if (channel == 0 && frame->header.phase == kDone && sends > 0) {
      if (before && phase == Phase::kCommits) happen();
      if (!before && phase == Phase::kHalfCommitted && ++dones == 1) happen();
    }
  };
  auto transports = open_loop(world);
  for (Rank r = 0; r < world; ++r) {
    auto opened = Session::open(
        std::make_unique<Faulty>(std::move(transports[at(r)]), net, r == victim ? hook : Faulty::Hook{}),
        {.codec = "onebit",
         .strategy = std::string(strategy.name),
         .hosts = testing::hosts_of(world),
         .min_values = 16,
         .timeout = kTimeout});
    EXPECT_TRUE(opened.ok());
    sessions[at(r)] = std::move(*opened);
  }
  Outcome out{std::vector<Status>(at(world)), std::vector<int>(at(world)), std::vector<char>(at(world)), {}};
  std::vector<Clock::time_point> ended(at(world));
  std::atomic<int> survivors{world - 1};
  std::vector<std::thread> threads;
  for (Rank r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      Session& mine = *sessions[at(r)];
      Values before;
      for (std::uint32_t round = 0; round < kFaultyRound + 3 && out.status[at(r)].ok(); ++round) {
        before = residuals(mine, kSomeSizes);
        Values v = gradients(kSomeSizes, testing::Data::kGaussian, r, static_cast<int>(round));
        out.status[at(r)] = synchronise(mine, kSomeSizes, v);
        out.committed[at(r)] += out.status[at(r)].ok();
      }
      out.kept[at(r)] = out.status[at(r)].ok() || same_bits(before, residuals(mine, kSomeSizes));
      ended[at(r)] = Clock::now();
      if (r != victim) --survivors;
    });
  if (fault == Fault::kShortCut || fault == Fault::kLongCut) {
    while (!happened && survivors > 0) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(fault == Fault::kShortCut ? kTimeout / 2 : kTimeout * 5 / 4);
    net->thaw_all();
  }
  while (survivors > 0) std::this_thread::sleep_for(2ms);
  if (fault != Fault::kIsolated) net->thaw_all();  // an isolated rank detects the fault by itself
  for (std::thread& t : threads) t.join();
  net->thaw_all();
  EXPECT_TRUE(happened) << "the fault did not happen";
  for (Rank r = 0; r < world; ++r)
    if (r != victim)
      out.longest = std::max(out.longest, ended[at(r)].time_since_epoch() - Clock::duration(since.load()));
  return out;
}

class BlameSuite : public ::testing::TestWithParam<Setting> {};

// Checks the outcome of one world against the rule.
void check(Fault fault, int world, Rank victim, const Outcome& o) {
  const bool heals = fault == Fault::kShortCut || fault == Fault::kSlow;
  const bool silent = fault == Fault::kFrozen || fault == Fault::kIsolated || fault == Fault::kLongCut;
  const Rank witness = 0;
  // On a busy machine the link may be up again before any rank has polled.
  if (fault == Fault::kLongCut &&
      std::all_of(o.status.begin(), o.status.end(), [](const Status& s) { return s.ok(); }))
    return;
  for (Rank r = 0; r < world; ++r) {
    const Status& s = o.status[at(r)];
    if (heals) {
      EXPECT_TRUE(s.ok()) << "rank " << r << ": " << text(s);
      continue;
    }
    EXPECT_TRUE(o.kept[at(r)]) << "rank " << r << " failed and its residuals moved";
    if (r == victim) {
      if (fault == Fault::kIsolated && world > 2) {
        EXPECT_EQ(s.peer(), victim) << "status of the isolated rank: " << text(s);
      }
      continue;
    }
    EXPECT_FALSE(s.ok()) << "rank " << r;
    if (fault == Fault::kLongCut && world == 2) continue;  // of two ranks, neither can tell which one failed
    EXPECT_EQ(s.peer(), victim) << "rank " << r << ": " << text(s);
    EXPECT_EQ(s.code(), fault == Fault::kCorrupt ? Code::kCorrupt
                        : silent                 ? Code::kTimeout
                                                 : Code::kPeerLost)
        << text(s);
    EXPECT_EQ(text(s), text(o.status[at(witness)])) << "rank " << r;
    EXPECT_EQ(o.committed[at(r)], o.committed[at(witness)])
        << "rank " << r << " and rank " << witness << " committed different rounds";
  }
  if (!heals) {
    EXPECT_LT(o.longest, (silent ? kTimeout : 0ms) + 5s);
  }
}

TEST_P(BlameSuite, AllSurvivorsNameTheSameRank) {
  const auto [fault, strategy] = GetParam();
  // A phase in one of the worlds, another one by fault and strategy; in all of them where TITHE_TEST_FULL=1.
  const std::size_t first = strategy->name.size() + static_cast<std::size_t>(fault);
  for (std::size_t turn = first; turn < first + (harness::full_products() ? 3 : 1); ++turn) {
    const auto world_of = [&](std::size_t phase) { return 2 + static_cast<int>((phase + turn) % 3); };
    std::vector<Outcome> outcomes(std::size(kPhases));
    std::vector<std::thread> worlds;
    for (std::size_t p = 0; p < std::size(kPhases); ++p)
      worlds.emplace_back([&, p] {
        outcomes[p] =
            run_world(GetParam().fault, kPhases[p], *GetParam().strategy, world_of(p), world_of(p) / 2);
      });
    for (std::thread& w : worlds) w.join();
    for (std::size_t p = 0; p < std::size(kPhases); ++p) {
      const int world = world_of(p);
      SCOPED_TRACE(fmt::format("{} {}, {} of {} ranks", kFaultNames[static_cast<int>(fault)], kPhaseNames[p],
                               strategy->name, world));
      check(fault, world, world / 2, outcomes[p]);
    }
  }
}

std::string title(const ::testing::TestParamInfo<Setting>& info) {
  return std::string(kFaultNames[static_cast<int>(info.param.fault)]) + "_" +
         std::string(info.param.strategy->name);
}
INSTANTIATE_TEST_SUITE_P(All, BlameSuite, ::testing::ValuesIn(settings()), title);

}  // namespace
}  // namespace tithe
