// SPDX-License-Identifier: Apache-2.0
// The order in which ready steps run: the promises of ready.h.
#include "engine/run/ready.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/run/queue.h"
#include "support/ranks.h"
#include "tithe/choices.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

using tithe::testing::Ranks;

// Buckets of one tensor each in a queue; the test itself replaces the transport.
class Jobs {
 public:
  explicit Jobs(std::string_view rules = "{}", std::string_view strategy = "server", int world = 3,
                std::size_t part_values = 1000)
      : member_{.world = world, .tagging = {}, .tags = {}},
        choices_(*Choices::make(*parse_rules(rules), {.spec = *parse_spec("fp32"),
                                                      .strategy = find_strategy(strategy),
                                                      .min_values = 0,
                                                      .part_values = part_values,
                                                      .world = world})) {}
  Job& add(const std::string& key, std::size_t n) {
    const PlanTensor tensor{.key = key, .n = n};
    std::vector<TensorLayout> layout = {{key, n, DType::kF32, 0, 0, 0}};
    return queue.add(std::make_unique<Unit>(member_, std::move(layout), make_plan({&tensor, 1}, choices_),
                                            std::span<const double>{}),
                     {});
  }
  void begin(Job& job) {
    queue.begin(job, {});
    queue.run(job);
  }
  Task take() {
    Task task;
    return queue.take({&task, 1}, 1) == 1 ? task : Task{};
  }
  // Runs all ready steps as a single lane would. Messages complete when no other step can run.
  std::vector<Task> run() {
    std::vector<Task> ran;
    while (true) {
      Task task = take();
      if (task.job == nullptr) {
        if (queue.post().empty()) return ran;
        task = queue.post().pop();
        if (task.what().kind == StepKind::kSend) queue.posted(task);
      }
      ran.push_back(task);
      queue.finished(task);
    }
  }
  Queue queue;

 private:
  Member member_;
  Choices choices_;
};

TEST(Ready, first_is_the_most_urgent_step) {
  Jobs jobs(R"({"late": {"priority": 1}})");
  Job& early = jobs.add("early", 4000);
  Job& late = jobs.add("late", 2000);
  jobs.begin(early);
  EXPECT_EQ(jobs.take().job, &early);
  jobs.begin(late);
  const std::vector<Task> ran = jobs.run();
  ASSERT_EQ(ran.front().job, &late) << "the bucket of higher priority runs first";
  std::size_t turn = 0, stores_before_sends = 0;
  for (std::size_t k = 1; k < ran.size(); ++k) {
    const auto mail = [](const Task& t) {
      return t.what().kind == StepKind::kSend || t.what().kind == StepKind::kRecv;
    };
    if (mail(ran[k]) || mail(ran[k - 1])) continue;
    if (ran[k - 1].job == &early && ran[k].job == &late) ++turn;
    if (ran[k].job != ran[k - 1].job) continue;
    if (ran[k - 1].what().kind == StepKind::kStore && ran[k].what().kind == StepKind::kEncode)
      ++stores_before_sends;
  }
  EXPECT_EQ(turn, 0U) << "a less urgent step ran first";
  EXPECT_EQ(stores_before_sends, 0U) << "an encode ran after a store of the same bucket";
}

// Buckets of equal priority run in the order of their start, part by part. Each round has its own order.
TEST(Ready, BucketsOfEqualPriorityRunInTheirOrder) {
  Jobs jobs;
  Job* a = &jobs.add("a", 3000);
  Job* b = &jobs.add("b", 3000);
  for (int round = 0; round < 2; ++round) {
    jobs.begin(*a);
    jobs.begin(*b);
    int part = 0;
    Job* at = a;
    for (Task t = jobs.take(); t.job != nullptr; t = jobs.take()) {
      if (t.job == b && at == a) {
        at = b;
        part = 0;
      }
      EXPECT_EQ(t.job, at);
      EXPECT_GE(t.what().part, part);
      part = t.what().part;
      jobs.queue.finished(t);
    }
    EXPECT_EQ(at, b);
    EXPECT_EQ(part, 2);
    jobs.run();
    EXPECT_EQ(jobs.queue.active(), 0);
    std::swap(a, b);
  }
}

// A new layout is added while others run; its priority is between theirs.
TEST(Ready, ALayoutCanBeAddedDuringARound) {
  Jobs jobs(R"({"a": {"priority": 4}, "b": {"priority": -3}, "c": {"priority": 2}})");
  Job& a = jobs.add("a", 2000);
  Job& b = jobs.add("b", 2000);
  jobs.begin(b);
  jobs.begin(a);
  Job& c = jobs.add("c", 2000);
  jobs.begin(c);
  std::vector<const Job*> order;
  for (const Task& t : jobs.run())
    if (order.empty() || std::find(order.begin(), order.end(), t.job) == order.end()) order.push_back(t.job);
  EXPECT_EQ(order, (std::vector<const Job*>{&a, &c, &b}));
  EXPECT_EQ(jobs.queue.active(), 0);
}

TEST(Ready, ClearRemovesAllSteps) {
  Jobs jobs;
  Job& a = jobs.add("a", 3000);
  jobs.begin(a);
  jobs.queue.drop();
  EXPECT_EQ(jobs.take().job, nullptr);
  EXPECT_TRUE(jobs.queue.post().empty());
}

// The same in a session. Without lanes no step runs before wait(), so the first step does not depend on timing.
TEST(Ready, ALateBucketOfHighPriorityRunsFirst) {
  Ranks ranks(open_loop(2), {.codec = "fp8",
                             .strategy = "server",
                             .choices = R"({"urgent": {"codec": "fp8", "priority": 1}})",
                             .lanes = 0,
                             .min_values = 0,
                             .part_values = 1000});
  ranks.each([&](Rank r) {
    for (int round = 0; round < 2; ++round) {
      std::vector<float> normal(8000, 1.0F), urgent(1000, 2.0F);
      const Tensor first{.key = "normal", .data = normal.data(), .n = normal.size()};
      const Tensor second{.key = "urgent", .data = urgent.data(), .n = urgent.size()};
      ranks[r].trace(round == 1);
      const Result<Ticket> a = ranks[r].sync({&first, 1}), b = ranks[r].sync({&second, 1});
      ASSERT_TRUE(a.ok() && b.ok());
      ASSERT_TRUE(ranks[r].wait(*a).ok());
      ASSERT_TRUE(ranks[r].wait(*b).ok());
      ASSERT_TRUE(ranks[r].commit().ok());
    }
    const std::vector<TraceEvent> events = ranks[r].take_trace();
    const auto computes = [](const TraceEvent& e) { return e.op == "encode"; };
    const auto at = std::find_if(events.begin(), events.end(), computes);
    ASSERT_NE(at, events.end());
    EXPECT_EQ(at->key, "urgent");
  });
}

// With default options the first frame of a large tensor leaves before its last chunk is encoded.
TEST(Pipeline, GatherSendsItsFirstByteBeforeAllIsEncoded) {
  Ranks ranks(open_loop(2), {.codec = "fp8", .strategy = "gather", .lanes = 0});
  ranks.each([&](Rank r) {
    std::vector<float> values(2'500'000, 1.0F);
    const Tensor tensor{.key = "large", .data = values.data(), .n = values.size()};
    ranks[r].trace(true);
    const Result<Ticket> ticket = ranks[r].sync({&tensor, 1});
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(ranks[r].wait(*ticket).ok());
    ASSERT_TRUE(ranks[r].commit().ok());
    std::int64_t first_send = std::numeric_limits<std::int64_t>::max(), last_encode = 0;
    int encodes = 0;
    for (const TraceEvent& e : ranks[r].take_trace()) {
      if (e.op == "send") first_send = std::min(first_send, e.begin_ns);
      if (e.op == "encode") last_encode = std::max(last_encode, e.begin_ns);
      encodes += e.op == "encode" ? 1 : 0;
    }
    EXPECT_EQ(encodes, 3);
    EXPECT_LT(first_send, last_encode);
  });
}

// A part whose messages have arrived continues while another part's messages are missing: the ring's re-encode is not
// delayed.
TEST(Pipeline, ReEncodingOfOnePartOverlapsTheReceiveOfAnother) {
  Jobs jobs("{}", "ring");
  Job& job = jobs.add("t", 2000);
  jobs.begin(job);
  std::size_t receives = 0, encodes = 0;
  while (true) {
    Task task = jobs.take();
    if (task.job == nullptr) {
      if (jobs.queue.post().empty()) break;
      task = jobs.queue.post().pop();
      const Step& step = task.what();
      if (step.kind == StepKind::kRecv && step.part == 1) {
        ++receives;  // posted, but no message arrives
        continue;
      }
      if (step.kind == StepKind::kSend) jobs.queue.posted(task);
    }
    if (task.what().kind == StepKind::kEncode && task.what().part == 0) ++encodes;
    jobs.queue.finished(task);
  }
  EXPECT_EQ(receives, 4U) << "receives of the other part";
  EXPECT_EQ(encodes, 3U) << "the rank's own chunk, and two chunks with merged values of other ranks";
  EXPECT_EQ(job.left[0], 0U) << "the first part has no steps left";
  EXPECT_GT(job.left[1], 0U);
}

// Parts begin in the plan's order, up to the window. The last part completes like the first.
TEST(Pipeline, PartsBeginAsTheWindowAllows) {
  // A part is larger than the 8 MiB window of a single host; such a window holds three parts.
  constexpr std::size_t kPart = 4'000'000;
  Jobs jobs("{}", "server", 3, kPart);
  Job& job = jobs.add("t", 10 * kPart);
  jobs.begin(job);
  std::size_t most = 0;
  int last = 0;
  while (true) {
    most = std::max(most, job.begun_parts - job.over);
    Task task = jobs.take();
    if (task.job == nullptr) {
      if (jobs.queue.post().empty()) break;
      task = jobs.queue.post().pop();
      if (task.what().kind == StepKind::kSend) jobs.queue.posted(task);
    }
    last = std::max(last, task.what().part);
    jobs.queue.finished(task);
  }
  EXPECT_EQ(most, 3U);
  EXPECT_EQ(last, 9);
  EXPECT_EQ(jobs.queue.active(), 0) << "no step is left";
}

}  // namespace
}  // namespace tithe::engine
