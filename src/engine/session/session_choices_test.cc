// SPDX-License-Identifier: Apache-2.0
// Sessions with choices: the codec of each tensor, refused choices, and choices in cards and states.
#include <gtest/gtest.h>

#include "support/forwarding_transport.h"
#include "support/ledger.h"
#include "tithe/seam/catalogue.h"
#include "tithe/tithe.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

constexpr std::string_view kChoices = R"({"*embedding*": {"codec": "topk:ratio=0.1", "strategy": "gather"},
                                          "*.bias": "fp32", "*norm*": "fp32"})";

// One round of a bucket with these tensors; all values are 1.
Status step(Session& session, const std::vector<std::pair<std::string, std::size_t>>& shapes) {
  std::vector<std::vector<float>> values;
  std::vector<Tensor> bucket;
  for (const auto& [key, n] : shapes) values.emplace_back(n, 1.0F);
  for (std::size_t k = 0; k < shapes.size(); ++k)
    bucket.push_back({.key = shapes[k].first, .data = values[k].data(), .n = shapes[k].second});
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

SessionOptions with(std::string_view choices) {
  return {.codec = "fp8", .strategy = "server", .choices = std::string(choices), .lanes = 0};
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(SessionChoices, EachTensorUsesItsRule) {
  Ranks ranks(open_loop(2), with(kChoices));
  ranks.each([&](Rank r) {
    const Status s = step(ranks[r], {{"embedding.weight", 20'000},
                                     {"fc.weight", 9000},
                                     {"fc.bias", 30},
                                     {"norm.weight", 5000},
                                     {"norm.bias", 50}});
    EXPECT_TRUE(s.ok()) << text(s);
  });
  const std::string plan = ranks[0].plan_text();
  for (const char* line :
       {"part 0: 20000 values from 0, topk:ratio=0.1 by gather (rule 1 ('*embedding*'))\n",
        "part 1: 9000 values from 20000, fp8 by server (default)\n",
        "part 2: 5000 values from 29000, fp32 by server (rule 3 ('*norm*'))\n",
        "part 3: 80 values from 34000, fp32 by gather (tensors below 4096 values are sent uncompressed)\n",
        "tensor embedding.weight: 20000 values, topk:ratio=0.1 by gather, part 0 (rule 1 ('*embedding*'))\n",
        "tensor fc.bias: 30 values, fp32 by gather, part 3 (tensors below 4096 values are sent "
        "uncompressed)\n"})
    EXPECT_TRUE(has(plan, line)) << line << "in\n" << plan;
  std::vector<float> unsent(20'000), none(9000);
  ASSERT_TRUE(ranks[0].residual("embedding.weight", unsent).ok());
  EXPECT_GT(std::count(unsent.begin(), unsent.end(), 1.0F), 15'000);
}

TEST(SessionChoices, ShorthandAndFullFormGiveTheSamePlan) {
  const auto plan = [](const SessionOptions& options) {
    Ranks ranks(open_loop(1), options);
    EXPECT_TRUE(step(ranks[0], {{"a", 10'000}, {"b", 10}, {"c", 5000}}).ok());
    std::string text = ranks[0].plan_text();
    for (const std::string_view why : {"default", "rule 1 ('*')"})
      for (std::size_t at = 0; (at = text.find(why)) != std::string::npos;) text.erase(at, why.size());
    return text;
  };
  EXPECT_EQ(
      plan({.codec = "topk", .strategy = "ring", .min_values = 0}),
      plan({.codec = "fp8", .choices = R"({"*": {"codec": "topk", "strategy": "ring"}})", .min_values = 0}));
}

TEST(SessionChoices, InvalidChoicesAreRefusedWhenTheSessionOpens) {
  const auto opened = [](std::string_view choices) {
    return Session::open(std::move(open_loop(1)[0]), with(choices)).status();
  };
  struct Case {
    std::string_view choices;
    Code code;
    std::string_view says;
  };
  for (const Case& c : {Case{R"({"*.bias": "fp23"})", Code::kInvalid, "did you mean 'fp32'?"},
                        {R"({"*.bias": {"inside": "bf16"}})", Code::kInvalid, "rule 1 ('*.bias'): 'inside'"},
                        {R"({"*.bias": {"inside": "bf61"}})", Code::kInvalid, "did you mean 'bf16'?"}}) {
    const Status s = opened(c.choices);
    EXPECT_EQ(s.code(), c.code) << text(s);
    EXPECT_TRUE(has(s.what(), c.says)) << text(s);
  }
}

TEST(SessionChoices, AKeyWithoutATensorIsNamedAfterTheFirstRound) {
  Ranks ranks(open_loop(2), with(R"({"fc.weigth": "bf16", "*emb*": "topk"})"));
  ranks.each([&](Rank r) {
    const std::vector<std::pair<std::string, std::size_t>> shapes = {{"fc.weight", 50}, {"fc.bias", 5}};
    Status s = step(ranks[r], shapes);
    EXPECT_TRUE(s.ok()) << text(s);
    EXPECT_TRUE(has(ranks[r].plan_text(), "rule 2 ('*emb*') matches no tensor\n")) << ranks[r].plan_text();
    for (int again = 0; again < 2; ++again) {
      s = step(ranks[r], shapes);
      EXPECT_EQ(s.code(), Code::kInvalid);
      EXPECT_TRUE(has(s.what(), "rule 1 ('fc.weigth')") && has(s.what(), "did you mean 'fc.weight'?"))
          << text(s);
    }
    EXPECT_TRUE(ranks[r].state().ok());
  });
}

TEST(SessionChoices, ADifferingRankIsNamedWithTheFirstDifferingRule) {
  struct Case {
    std::string_view choices, says;
  };
  for (const Case& c :
       {Case{R"({"a": "bf16", "*.bias": "bf16"})",
             "rank 1 differs: choices: rule 2 is '*.bias' bf16 by server instead of '*.bias' fp32 by server"},
        {R"({"a": "bf16"})", "choices: rule 2 is not there instead of '*.bias' fp32 by server"},
        {"", "it has no choices, other ranks have some"},
        {R"({"a": "bf16", "*.bias": {"codec": "fp32", "priority": 3}})",
         "rule 2 is '*.bias' fp32 by server, priority 3"}}) {
    Ranks ranks(open_loop(3), with(R"({"a": "bf16", "*.bias": "fp32"})"), [&](Rank r, SessionOptions& o) {
      if (r == 1) o.choices = c.choices;
    });
    ranks.each([&](Rank r) {
      const Status s = step(ranks[r], {{"a", 10}});
      EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
      EXPECT_EQ(s.peer(), 1) << text(s);
      EXPECT_TRUE(has(s.what(), c.says)) << text(s);
    });
  }
}

// A card contains the beginning of the rules and their hash.
TEST(SessionChoices, ADifferenceInTheLastOfManyRulesIsDetected) {
  const auto many = [](std::string_view last) {
    std::string json = "{";
    for (int k = 0; k < 300; ++k) json += R"("layer)" + std::to_string(k) + R"(.*": "fp32", )";
    return json + R"("*.x": ")" + std::string(last) + R"("})";
  };
  Ranks ranks(open_loop(3), with(many("bf16")), [&](Rank r, SessionOptions& o) {
    if (r == 2) o.choices = many("fp16");
  });
  ranks.each([&](Rank r) {
    const Status s = step(ranks[r], {{"a", 10}});
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
    EXPECT_TRUE(has(s.what(), "beyond the part that this message shows")) << text(s);
  });
}

TEST(SessionChoices, AStateContainsTheChoices) {
  const auto open = [](std::string_view choices) {
    return std::move(*Session::open(std::move(open_loop(1)[0]), with(choices)));
  };
  const auto saver = open(kChoices);
  ASSERT_TRUE(step(*saver, {{"embedding.weight", 20'000}}).ok());
  const std::vector<std::uint8_t> saved = *saver->state();

  const auto same = open(kChoices);
  EXPECT_TRUE(same->restore(saved).ok());
  std::vector<float> unsent(20'000);
  ASSERT_TRUE(same->residual("embedding.weight", unsent).ok());
  EXPECT_GT(std::count(unsent.begin(), unsent.end(), 1.0F), 15'000);

  for (
      const auto& [other, says] : std::vector<std::pair<std::string_view, std::string_view>>{
          {R"({"*embedding*": {"codec": "topk:ratio=0.2", "strategy": "gather"}, "*.bias": "fp32", "*norm*": "fp32"})",
           "this session has other rules, from rule 1 ('*embedding*') on; open it with choices={"},
          {"", "this session has no choices; open it with choices={"}}) {
    const Status s = open(other)->restore(saved);
    EXPECT_EQ(s.code(), Code::kInvalid);
    EXPECT_TRUE(has(s.what(), says)) << text(s);
  }
  const auto plain = open("");
  const Status s = open(kChoices)->restore(*plain->state());
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_TRUE(has(s.what(), "saved without choices")) << text(s);
}

TEST(SessionChoices, TheCInterfaceAcceptsChoicesAndALink) {
  const auto opened = [](const char* choices, const char* link, tithe_error& error) {
    tithe_transport* transport = nullptr;
    EXPECT_EQ(tithe_open_loop(1, &transport, nullptr), TITHE_OK);
    tithe_options options;
    tithe_options_init(&options);
    options.choices = choices;
    options.link = link;
    tithe_session* session = nullptr;
    const int code = tithe_session_open(transport, &options, &session, &error);
    tithe_session_close(session);
    return code;
  };
  tithe_error error;
  EXPECT_EQ(opened(R"({"*.bias": "fp32"})", "10Gb/s", error), TITHE_OK);
  EXPECT_EQ(opened(nullptr, nullptr, error), TITHE_OK);
  EXPECT_EQ(opened(R"({"*.bias": "fp23"})", nullptr, error), TITHE_INVALID);
  EXPECT_TRUE(has(error.what, "rule 1 ('*.bias')")) << error.what;
  EXPECT_EQ(opened(nullptr, "fast", error), TITHE_INVALID);
  EXPECT_TRUE(has(error.what, "such as 10Gb/s")) << error.what;
}

// A rule without a codec uses the session's codec, and so its schedule.
TEST(SessionChoices, AScheduleAppliesToRulesWithoutACodec) {
  SessionOptions options = with(R"({"a.*": {"strategy": "gather"}, "b.*": "topk:ratio=0.05"})");
  options.codec = "topk:ratio=0.01";
  options.schedule = "warmup:4";
  options.min_values = 0;
  Ranks ranks(open_loop(1), options);
  ASSERT_TRUE(step(ranks[0], {{"a.x", 1000}, {"b.x", 1000}, {"c.x", 1000}}).ok());
  for (const auto& [key, left] :
       std::vector<std::pair<const char*, int>>{{"a.x", 750}, {"b.x", 950}, {"c.x", 750}}) {
    std::vector<float> unsent(1000);
    ASSERT_TRUE(ranks[0].residual(key, unsent).ok());
    EXPECT_EQ(std::count(unsent.begin(), unsent.end(), 1.0F), left) << key;
  }
}

// A group with a codec: one part, all laws, and one residual per tensor.
TEST(SessionChoices, AGroupSharesAPartWithItsCodec) {
  constexpr std::size_t kSizes[] = {9, 33, 255, 256, 1000};
  SessionOptions options{.codec = "fp8",
                         .strategy = "server",
                         .choices = R"({"*": {"codec": "topk:ratio=0.1", "group": "all"}})",
                         .lanes = 0,
                         .average = false};
  Ranks ranks(open_loop(3), options);
  std::vector<testing::Values> grads(3), result(3), before(3), after(3);
  for (int round = 0; round < 3; ++round) {
    ranks.each([&](Rank r) {
      const auto i = static_cast<std::size_t>(r);
      before[i] = testing::residuals(ranks[r], kSizes);
      grads[i] = result[i] = testing::gradients(kSizes, testing::Data::kDyadic, r, round);
      std::vector<std::string> keys;
      std::vector<Tensor> bucket;
      for (const std::size_t n : kSizes) keys.push_back(testing::key_of(n));
      for (std::size_t k = 0; k < keys.size(); ++k)
        bucket.push_back({.key = keys[k], .data = result[i][k].data(), .n = result[i][k].size()});
      const Result<Ticket> ticket = ranks[r].sync(bucket);
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      ASSERT_TRUE(ranks[r].wait(*ticket).ok());
      ASSERT_TRUE(ranks[r].commit().ok());
      after[i] = testing::residuals(ranks[r], kSizes);
    });
    for (std::size_t r = 1; r < 3; ++r) EXPECT_EQ(testing::first_difference(result[r], result[0]), "");
    EXPECT_EQ(testing::imbalance(grads, before, result[0], after, find_codec("topk")->traits, true).times, 0);
  }
  EXPECT_TRUE(
      has(ranks[0].plan_text(), "part 0: 1553 values from 0, topk:ratio=0.1 by server (rule 1 ('*'))\n"))
      << ranks[0].plan_text();
  EXPECT_EQ(ranks[0].stats().frames_sent, 3U * 4)
      << "one part: 3 rounds, 2 chunks to their owners and 2 results";
}

// ---- Links that the transport detects

class Found : public testing::ForwardingTransport {
 public:
  Found(std::unique_ptr<Transport> inner, std::uint64_t rate)
      : ForwardingTransport(std::move(inner)), rate_(rate) {}
  std::uint64_t link_rate() const override { return rate_; }

 private:
  std::uint64_t rate_;
};

std::vector<std::unique_ptr<Transport>> found(std::uint64_t bytes_per_second, int world = 4) {
  std::vector<std::unique_ptr<Transport>> out;
  for (auto& t : open_loop(world)) out.push_back(std::make_unique<Found>(std::move(t), bytes_per_second));
  return out;
}

std::string plan_of(Ranks& ranks) {
  ranks.each([&](Rank r) {
    const Status s = step(ranks[r], {{"fc.weight", 3'000'000}, {"fc.bias", 30}});
    EXPECT_TRUE(s.ok()) << text(s);
  });
  return ranks[0].plan_text();
}
std::string without_links(std::string plan) {
  const std::size_t at = plan.find("links of ");
  return at == std::string::npos ? plan : plan.erase(at, plan.find('\n', at) + 1 - at);
}

constexpr std::uint64_t kTenGbit = 1'250'000'000;

TEST(SessionChoices, ADetectedLinkHasTheEffectOfAConfiguredLink) {
  Ranks stated(open_loop(4), {.codec = "fp8", .link = "10Gb/s", .lanes = 0});
  Ranks finds(found(kTenGbit), {.codec = "fp8", .lanes = 0});
  const std::string plan = plan_of(finds);
  EXPECT_TRUE(
      has(plan, "links of 10 Gbit/s, as reported by the drivers of all ranks; link= overrides this rate\n"))
      << plan;
  EXPECT_EQ(without_links(plan), plan_of(stated));
  Ranks configured(found(kTenGbit), {.codec = "fp8", .link = "100Mb/s", .lanes = 0});
  Ranks slow(open_loop(4), {.codec = "fp8", .link = "100Mb/s", .lanes = 0});
  EXPECT_EQ(plan_of(configured), plan_of(slow)) << "the configured link overrides the detected one";
  EXPECT_NE(plan_of(configured), without_links(plan));
}

TEST(SessionChoices, AResumedJobKeepsItsLink) {
  Ranks first(found(kTenGbit), {.codec = "fp8", .lanes = 0});
  const std::string plan = plan_of(first);
  std::vector<std::vector<std::uint8_t>> states;
  for (Rank r = 0; r < 4; ++r) states.push_back(*first[r].state());
  for (const std::uint64_t rate : {std::uint64_t{12'500'000}, std::uint64_t{0}}) {
    Ranks again(found(rate), {.codec = "fp8", .lanes = 0});
    again.each([&](Rank r) {
      const Status s = again[r].restore(states[static_cast<std::size_t>(r)]);
      EXPECT_TRUE(s.ok()) << text(s);
    });
    EXPECT_EQ(plan_of(again), plan) << rate;
    EXPECT_EQ(plan_of(again), plan) << "the state contains the link";
    EXPECT_EQ(*again[0].state(), *again[0].state());
  }
  Ranks configured(found(0), {.codec = "fp8", .link = "100Mb/s", .lanes = 0});
  Ranks slow(open_loop(4), {.codec = "fp8", .link = "100Mb/s", .lanes = 0});
  configured.each(
      [&](Rank r) { EXPECT_TRUE(configured[r].restore(states[static_cast<std::size_t>(r)]).ok()); });
  EXPECT_EQ(plan_of(configured), plan_of(slow)) << "a configured link overrides the link of the state";
}

}  // namespace
}  // namespace tithe
