// SPDX-License-Identifier: Apache-2.0
// Sessions with codec "auto" on links with a rate that the test sets: a rank's bytes are sent one after the other at
// that rate. The round of each event depends on the machine; the events do not.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "engine/session/advisor.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::has;
using testing::Ranks;
using testing::text;

constexpr std::size_t kValues = 150'000;

class SlowLink final : public testing::ForwardingTransport {
 public:
  SlowLink(std::unique_ptr<Transport> inner, const std::atomic<double>& bytes_per_second)
      : ForwardingTransport(std::move(inner)), rate_(bytes_per_second) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(bytes.size()) / rate_));
    return ForwardingTransport::send(peer, channel, bytes, op);
  }

 private:
  const std::atomic<double>& rate_;
};

std::vector<std::unique_ptr<Transport>> slow(int world, const std::atomic<double>& rate) {
  std::vector<std::unique_ptr<Transport>> out;
  for (auto& t : open_loop(world)) out.push_back(std::make_unique<SlowLink>(std::move(t), rate));
  return out;
}

// Every value of "body" in rank r's gradient is r + 1, so the mean is exact with any codec that has one scale.
struct Gradients {
  std::vector<float> body = std::vector<float>(kValues), head = std::vector<float>(100);
};

Status step(Session& session, Gradients& g) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::fill(g.body.begin(), g.body.end(), static_cast<float>(session.rank() + 1));
  std::fill(g.head.begin(), g.head.end(), 1.0F);
  const Tensor bucket[] = {{"head", g.head.data(), g.head.size()}, {"body", g.body.data(), g.body.size()}};
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& l : lines) out += l + "\n";
  return out;
}

// Runs steps until `over` accepts rank 0's messages, at most `most` steps. Returns all messages.
std::string steps_until(Ranks& ranks, const std::function<bool(const std::string&)>& over, int most,
                        std::vector<Gradients>& last) {
  std::string messages;
  for (int k = 0; k < most && !over(messages); ++k) {
    ranks.each([&](Rank r) {
      const Status s = step(ranks[r], last[static_cast<std::size_t>(r)]);
      EXPECT_TRUE(s.ok()) << "rank " << r << ", step " << k << ": " << text(s);
    });
    messages += joined(ranks[0].messages());
    for (Rank r = 1; r < ranks.world(); ++r) EXPECT_TRUE(ranks[r].messages().empty());
  }
  return messages;
}

SessionOptions with(std::string codec, int lanes = 1) { return {.codec = std::move(codec), .lanes = lanes}; }

TEST(SessionAuto, CompressesOnASlowLinkOnAllRanks) {
  for (const int lanes : {0, 1}) {
    SCOPED_TRACE(lanes);
    const std::atomic<double> rate{30e6};
    Ranks ranks(slow(2, rate), with("auto:allow=onebit", lanes));
    std::vector<Gradients> last(2);
    const auto switched = [&](const std::string&) { return has(ranks[1].choices(), "onebit"); };
    const std::string messages = steps_until(ranks, switched, 400, last);
    EXPECT_TRUE(switched({})) << messages;
    EXPECT_TRUE(has(messages, "should take")) << messages;
    (void)steps_until(
        ranks, [](const std::string&) { return false; }, 3, last);
    EXPECT_EQ(last[0].body, last[1].body);
    EXPECT_EQ(last[0].head, last[1].head);
    EXPECT_EQ(ranks[0].choices(), ranks[1].choices());
    EXPECT_NEAR(last[0].body[7], 1.5, 0.5);

    // A restarted job begins with the plan.
    std::vector<std::vector<std::uint8_t>> states;
    for (Rank r = 0; r < 2; ++r) states.push_back(*ranks[r].state());
    Ranks again(slow(2, rate), with("auto:allow=onebit", lanes));
    for (Rank r = 0; r < 2; ++r) {
      const Status s = again[r].restore(states[static_cast<std::size_t>(r)]);
      ASSERT_TRUE(s.ok()) << text(s);
      EXPECT_EQ(again[r].choices(), ranks[r].choices());
    }
    (void)steps_until(
        again, [](const std::string&) { return false; }, 2, last);
    EXPECT_EQ(last[0].body, last[1].body);

    // The plan is refused if its codec is no longer allowed.
    Ranks strict(slow(2, rate), with("auto", lanes));
    const Status refused = strict[0].restore(states[0]);
    EXPECT_EQ(refused.code(), Code::kInvalid);
    EXPECT_TRUE(has(refused.what(), "which auto does not allow")) << refused.what();
  }
}

TEST(SessionAuto, WithoutPermissionNoLossyCodecIsChosen) {
  const std::atomic<double> rate{30e6};
  Ranks ranks(slow(2, rate), with("auto"));
  std::vector<Gradients> last(2);
  const std::string messages = steps_until(
      ranks, [](const std::string& s) { return has(s, "auto: "); }, 400, last);
  EXPECT_TRUE(has(messages, "auto: ")) << messages;
  for (const char* lossy : {"onebit", "fp8", "topk"}) EXPECT_FALSE(has(ranks[0].plan_text(), lossy));
  EXPECT_TRUE(has(ranks[0].plan_text(), "bf16"));
}

TEST(SessionAuto, KeepsAndReportsBf16OnFastLinks) {
  Ranks ranks(open_loop(2), with("auto:allow=onebit"));
  std::vector<Gradients> last(2);
  const auto step_of_mostly_computing = [&] {
    ranks.each([&](Rank r) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(step(ranks[r], last[static_cast<std::size_t>(r)]).ok());
    });
  };
  std::string messages;
  for (int k = 0; k < 200 && !has(messages, "auto: "); ++k) {
    step_of_mostly_computing();
    messages += joined(ranks[0].messages());
  }
  EXPECT_TRUE(has(messages, "auto: ")) << messages;
}

TEST(SessionAuto, DifferingConstraintNamesTheRank) {
  Ranks ranks(open_loop(3), with("auto:allow=onebit"), [](Rank r, SessionOptions& o) {
    if (r == 2) o.codec = "auto";
  });
  std::vector<Gradients> last(3);
  std::vector<Status> status(3);
  ranks.each([&](Rank r) {
    status[static_cast<std::size_t>(r)] = step(ranks[r], last[static_cast<std::size_t>(r)]);
  });
  EXPECT_EQ(status[0].code(), Code::kMismatch) << text(status[0]);
  EXPECT_EQ(status[0].peer(), 2);
  EXPECT_TRUE(has(status[0].what(), "codec auto instead of auto:allow=onebit")) << status[0].what();
}

TEST(SessionAuto, RefusesOptionsThatAutoChooses) {
  const auto why = [](const SessionOptions& options) {
    return Session::open(std::move(open_loop(1)[0]), options).status();
  };
  EXPECT_TRUE(has(why({.codec = "auto", .choices = R"({"*": "fp8"})"}).what(), "omit choices"));
  EXPECT_TRUE(has(why({.codec = "auto", .schedule = "warmup:400"}).what(), "schedule"));
  EXPECT_TRUE(has(why({.codec = "auto:fast"}).what(), "auto has one parameter, allow"));
  Ranks ranks(open_loop(2), with("auto", 0));
  const Status s = ranks[0].propose(R"({"*": "fp8"})");
  EXPECT_TRUE(has(s.what(), "makes its own proposals")) << text(s);
}

TEST(SessionAuto, UnsatisfiableConstraintIsReportedAndTrainingContinues) {
  const std::atomic<double> rate{30e6};
  Ranks ranks(slow(2, rate), with("auto:allow=onebit+embedding*: fp32"));
  std::vector<Gradients> last(2);
  const std::string messages = steps_until(
      ranks, [](const std::string& s) { return has(s, "planning failed"); }, 300, last);
  EXPECT_TRUE(has(messages, "no tensor of the model has such a key")) << messages;
  EXPECT_FALSE(has(ranks[0].plan_text(), "onebit"));
}

TEST(SessionAuto, ChangedHostsAreMeasuredAndReportedAgain) {
  engine::AdvisorContext context{
      .defaults = {.spec = *parse_spec("bf16"), .strategy = find_strategy("server"), .world = 2},
      .run_in_background = [](const std::function<void()>&) {},
      .now_ns = [] { return std::int64_t{0}; },
      .mark = [](std::string_view, std::int64_t, std::int64_t) {}};
  const auto advisor = engine::make_advisor(*parse_auto("auto"), context);
  advisor->restored(R"({"where":"8 ranks on hosts 8x1 of another machine","step_s":0.5})", {});
  const std::string messages = joined(advisor->messages());
  EXPECT_TRUE(has(messages, "made on 8 ranks on hosts 8x1 of another machine")) << messages;
  EXPECT_TRUE(has(messages, "measures again")) << messages;
  for (const char* bad : {"", "no json", "[1]", R"({"where":3})"}) {
    advisor->restored(bad, {});
    EXPECT_TRUE(advisor->messages().empty()) << bad;
  }
}

TEST(SessionAuto, TraceContainsTheDecision) {
  const std::atomic<double> rate{30e6};
  Ranks ranks(slow(2, rate), with("auto:allow=onebit"));
  ranks[0].trace(true);
  std::vector<Gradients> last(2);
  (void)steps_until(
      ranks, [](const std::string& s) { return has(s, "auto: ") && !has(s, "then chooses from"); }, 400,
      last);
  bool marked = false;
  for (const TraceEvent& e : ranks[0].take_trace()) marked = marked || e.op.starts_with("auto: ");
  EXPECT_TRUE(marked);
}

}  // namespace
}  // namespace tithe
