// SPDX-License-Identifier: Apache-2.0
// Programs compiled from plans, and the order in which the queue returns their steps.
#include "engine/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "base/rng.h"
#include "engine/program/laws.h"
#include "engine/program/window.h"
#include "engine/run/queue.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

Plan plan_of(std::span<const std::size_t> sizes, std::string_view strategy) {
  std::vector<PlanTensor> bucket;
  for (const std::size_t n : sizes) bucket.push_back({.key = "t", .n = n});
  return make_plan(bucket, Choices::of({.spec = *parse_spec("fp32"),
                                        .strategy = find_strategy(strategy),
                                        .min_values = 0,
                                        .part_values = std::size_t{1} << 30}));
}

Plan plan_of(const Spec& spec, std::size_t n, std::string_view strategy,
             std::size_t part = std::size_t{1} << 30) {
  const PlanTensor bucket[] = {{.key = "t", .n = n}};
  return make_plan(
      bucket,
      Choices::of({.spec = spec, .strategy = find_strategy(strategy), .min_values = 0, .part_values = part}));
}

std::size_t count(const Program& program, StepKind kind) {
  return static_cast<std::size_t>(std::count_if(program.steps.begin(), program.steps.end(),
                                                [&](const Step& s) { return s.kind == kind; }));
}

Program program_of(std::size_t n, std::string_view strategy, int world) {
  return compile(plan_of(std::span(&n, 1), strategy), {0, world}, {});
}

// Each received frame is checked once: by its only reader if the frame is small or read in order, otherwise by a step
// of its own. A forwarded frame is checked before it is forwarded.
TEST(Program, EachReceivedFrameIsValidatedOnce) {
  for (const std::string_view strategy : {"server", "gather", "ring", "aggregator"})
    for (const std::size_t n : {std::size_t{100}, std::size_t{1'000'000}}) {
      const Program p = program_of(n, strategy, 4);
      SCOPED_TRACE(strategy);
      std::vector<int> checks(p.slots.size());
      for (const Step& s : p.steps)
        if (s.kind == StepKind::kCheck) ++checks[static_cast<std::size_t>(s.slot)];
      for (const Step& s : p.checks) ++checks[static_cast<std::size_t>(s.slot)];
      for (const Step& s : p.steps) {
        if (s.kind != StepKind::kRecv) continue;
        const auto slot = static_cast<std::size_t>(s.slot);
        EXPECT_EQ(checks[slot], 1);
        const auto any = [&](StepKind kind) {
          return std::any_of(p.steps.begin(), p.steps.end(),
                             [&](const Step& other) { return other.kind == kind && other.slot == s.slot; });
        };
        // Forwarded without an addition.
        const bool passed_on = any(StepKind::kSend) && !any(StepKind::kEncode);
        const bool in_order = std::any_of(p.steps.begin(), p.steps.end(), [&](const Step& other) {
          return (other.onto || (other.kind == StepKind::kStore && other.frames.count == 1)) &&
                 p.indices[other.frames.first] == s.slot;
        });
        EXPECT_EQ(p.check_of[slot] < 0, passed_on || (n > 100 && !in_order)) << "slot " << slot;
      }
      EXPECT_EQ(p.checks.size() + count(p, StepKind::kCheck), count(p, StepKind::kRecv));
    }
}

TEST(Program, StepsWithoutPredecessorsComeFirst) {
  const Program p = program_of(1000, "server", 3);
  for (std::size_t s = 0; s < p.steps.size(); ++s) {
    const std::vector<int>& first = p.parts[static_cast<std::size_t>(p.steps[s].part)].first;
    EXPECT_EQ(p.waits[s], p.steps[s].waits);
    EXPECT_EQ(std::count(first.begin(), first.end(), static_cast<int>(s)), p.waits[s] == 0 ? 1 : 0);
  }
}

// For each chunk: its values are loaded once, before every other step that reads or writes them.
void expect_loaded_once(const Plan& plan, const Place& at, const std::vector<bool>& copied) {
  const Program p = compile(plan, at, {}, {}, nullptr, copied);
  std::vector<std::vector<bool>> before(p.steps.size(), std::vector<bool>(p.steps.size()));
  for (std::size_t s = 0; s < p.steps.size(); ++s)  // steps are in an order in which they can run
    for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k) {
      const auto next = static_cast<std::size_t>(p.indices[p.steps[s].next.first + k]);
      ASSERT_GT(next, s);
      before[next][s] = true;
      for (std::size_t b = 0; b < s; ++b)
        if (before[s][b]) before[next][b] = true;
    }
  for (std::size_t part = 0; part < p.parts.size(); ++part)
    for (Chunk c = 0; c < p.parts[part].chunks; ++c) {
      std::vector<std::size_t> loads, users;
      for (std::size_t s = 0; s < p.steps.size(); ++s) {
        const Step& step = p.steps[s];
        if (step.part != static_cast<int>(part)) continue;
        const bool load = step.kind == StepKind::kLoad;
        if (step.loads || load)
          if (step.chunk == c || step.chunk == kWholePart) loads.push_back(s);
        const bool uses = step.kind == StepKind::kOwn || step.kind == StepKind::kEncode ||
                          step.kind == StepKind::kMerge || step.kind == StepKind::kStore;
        if (uses && step.chunk == c) users.push_back(s);
      }
      ASSERT_EQ(loads.size(), 1U) << "part " << part << ", chunk " << c;
      for (const std::size_t u : users) EXPECT_TRUE(u == loads[0] || before[u][loads[0]]);
    }
}

TEST(Program, TheFirstStepOfAChunkLoadsIt) {
  for (const char* codec :
       {"fp32", "onebit", "topk", "powersgd:cols=10", "scalecom", "onebit:clip=1", "topk:feedback=momentum"})
    for (const Strategy* strategy : all_strategies()) {
      const Spec spec = *parse_spec(codec);
      if (!choose_laws(spec, *strategy).ok()) continue;
      for (const std::size_t n : {std::size_t{1000}})
        for (int world = 1; world <= 4; ++world)
          for (Rank me = 0; me < world; ++me)
            for (const bool copied : {false, true}) {
              SCOPED_TRACE(std::string(codec) + " by " + std::string(strategy->name));
              const PlanTensor bucket[] = {{.key = "t", .n = n, .row = 10}};
              const Plan plan = make_plan(bucket, Choices::of({.spec = spec,
                                                               .strategy = strategy,
                                                               .min_values = 0,
                                                               .part_values = 600,
                                                               .world = world}));
              expect_loaded_once(plan, {me, world}, std::vector<bool>(plan.parts.size(), copied));
            }
    }
}

// No step waits for all chunks of its part, and no load step is empty. Clipping, which needs the norm of all values,
// is the exception.
TEST(Program, NoStepWaitsForAWholePartUnlessItIsClipped) {
  for (const std::string_view strategy : {"server", "gather", "ring", "aggregator"}) {
    EXPECT_EQ(count(program_of(1000, strategy, 4), StepKind::kLoad), 0U) << strategy;
    const std::size_t n = 1000;
    const Plan plan = plan_of(std::span(&n, 1), strategy);
    const Program copied = compile(plan, {0, 4}, {}, {}, nullptr, {true});
    for (const Step& s : copied.steps) EXPECT_NE(s.chunk, kWholePart);
  }
}

// The payload of fp32 is the tensor's own memory, so payloads of other ranks are added into a received frame, and the
// sum is sent from there. A forwarded frame is written only by its receive.
TEST(Program, UncompressedPayloadsAreAddedIntoTheReceivedFrame) {
  for (const std::string_view strategy : {"server", "ring"})
    for (int world = 2; world <= 5; ++world)
      for (Rank me = 0; me < world; ++me) {
        const std::size_t n = 10'000;
        const Program p = compile(plan_of(std::span(&n, 1), strategy), {me, world}, {});
        SCOPED_TRACE(strategy);
        EXPECT_EQ(count(p, StepKind::kOwn), 0U);
        std::vector<int> writers(p.slots.size());
        for (const Step& s : p.steps) {
          if (s.kind == StepKind::kRecv || (s.kind == StepKind::kEncode && s.direct))
            ++writers[static_cast<std::size_t>(s.slot)];
          if (s.kind != StepKind::kMerge) continue;
          EXPECT_TRUE(s.onto);
          EXPECT_EQ(s.slot, p.indices[s.frames.first]);
        }
        EXPECT_TRUE(std::all_of(writers.begin(), writers.end(), [](int w) { return w == 1; }));
      }
  const std::size_t n = 10'000;
  const Plan plan = make_plan(
      std::vector<PlanTensor>{{.key = "t", .n = n}},
      Choices::of({.spec = *parse_spec("bf16"), .strategy = find_strategy("ring"), .min_values = 0}));
  EXPECT_EQ(count(compile(plan, {0, 4}, {}), StepKind::kOwn), 3U);
}

// All steps that use a frame have run before another frame is received into its memory.
void expect_left_before(const Program& p, std::size_t shared) {
  std::vector<std::vector<bool>> right_before(p.steps.size(), std::vector<bool>(p.steps.size()));
  for (std::size_t s = 0; s < p.steps.size(); ++s)
    for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k)
      right_before[static_cast<std::size_t>(p.indices[p.steps[s].next.first + k])][s] = true;
  std::vector<std::vector<bool>> before = right_before;
  for (std::size_t s = 0; s < p.steps.size(); ++s)
    for (std::size_t b = 0; b < s; ++b)
      for (std::size_t c = 0; before[s][b] && c < b; ++c)
        if (before[b][c]) before[s][c] = true;
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < p.slots.size(); ++a)
    for (std::size_t b = a + 1; b < p.slots.size(); ++b) {
      if (p.slots[a].offset != p.slots[b].offset) continue;
      ++pairs;
      EXPECT_EQ(p.slots[a].bytes, p.slots[b].bytes);
      const auto incoming = std::ranges::find_if(
          p.steps, [&](const Step& s) { return s.kind == StepKind::kRecv && s.slot == static_cast<int>(b); });
      ASSERT_NE(incoming, p.steps.end());
      const auto recv = static_cast<std::size_t>(incoming - p.steps.begin());
      for (std::size_t s = 0; s < p.steps.size(); ++s) {
        const Step& step = p.steps[s];
        const auto frames = std::span(p.indices).subspan(step.frames.first, step.frames.count);
        const int slot = static_cast<int>(a);
        if (step.slot != slot && std::ranges::find(frames, slot) == frames.end()) continue;
        EXPECT_TRUE(before[recv][s]) << "step " << s << " uses slot " << a << ", which step " << recv
                                     << " receives into";
      }
    }
  EXPECT_EQ(pairs, shared);
  // A peer's messages match its receives in the order in which the receives are posted, so a receive must wait for
  // every step that the previous receive from that peer waits for. Sends are posted in order, but may complete in
  // another order.
  std::map<Rank, std::size_t> last;
  for (std::size_t s = 0; s < p.steps.size(); ++s) {
    if (p.steps[s].kind != StepKind::kRecv) continue;
    if (const auto [at, fresh] = last.try_emplace(p.steps[s].peer, s); !fresh) {
      for (std::size_t b = 0; b < p.steps.size(); ++b)
        EXPECT_TRUE(!right_before[at->second][b] || right_before[s][b])
            << "step " << s << " may overtake " << at->second;
      at->second = s;
    }
  }
}

// If all ranks share a host, a received frame of a chunk reuses the memory of this rank's own frame of that chunk.
TEST(Program, OnOneHostAReceivedFrameReusesTheMemoryOfTheSentFrame) {
  for (const char* codec : {"fp32", "bf16", "onebit", "scalecom", "topk", "thc"})
    for (int world = 1; world <= 5; ++world)
      for (Rank me = 0; me < world; ++me)
        for (const std::string_view strategy : {"server", "ring", "tree", "aggregator", "gather"}) {
          const Spec spec = *parse_spec(codec);
          const auto laws = choose_laws(spec, *find_strategy(strategy));
          if (!laws.ok()) continue;
          SCOPED_TRACE(std::string(codec) + " by " + std::string(strategy));
          const Hosts one = *Hosts::parse(std::to_string(world), world);
          const Plan plan = plan_of(spec, 10'000, strategy);
          const bool by_chunk = strategy == "server" || strategy == "ring";
          std::size_t of_root = by_chunk ? static_cast<std::size_t>(world - 1) : me > 0 ? 1 : 0;
          if (strategy == "gather") of_root = 0;
          const auto phases = static_cast<std::size_t>(
              std::ranges::count_if(*laws, [](Law law) { return !rule_of(law).joins; }));
          const Program shares = compile(plan, {me, world, &one}, {}), apart = compile(plan, {me, world}, {});
          expect_left_before(shares, of_root * phases);
          expect_left_before(apart, 0);
          EXPECT_EQ(shares.steps.size(), apart.steps.size());
          EXPECT_EQ(shares.arena_bytes<apart.arena_bytes, of_root * phases> 0);
        }
  for (const int world : {17, 18}) {  // a receive waits for at most 16 sends: the limit, and one rank more
    const Hosts one = *Hosts::parse(std::to_string(world), world);
    expect_left_before(compile(plan_of(*parse_spec("fp32"), 10'000, "ring"), {0, world, &one}, {}), 16);
  }
  const std::size_t n = 1'000'000;
  const Hosts one = *Hosts::parse("4", 4);
  const auto arena = [&](const char* codec, std::string_view strategy) {
    return compile(plan_of(*parse_spec(codec), n, strategy), {0, 4, &one}, {}).arena_bytes;
  };
  const std::size_t slack = 8192;  // headers
  EXPECT_LT(arena("fp32", "ring"), 4 * n + slack);
  EXPECT_LT(arena("fp32", "server"), 4 * n * 3 / 2 + slack);
  EXPECT_LT(arena("bf16", "ring"), 2 * n * 7 / 4 + slack);
  EXPECT_LT(arena("bf16", "server"), 2 * n * 7 / 4 + slack);
}

// Runs a round of all ranks on a transport without buffers: a send completes when its message is received, a message
// is received when its receive is posted, and the messages of a channel keep their order. The seed selects the next
// of several possible messages. Returns the number of ranks that ended the round.
int ended(std::span<const Program> programs, std::uint64_t seed) {
  struct Line {
    std::deque<Task> sends, receives;
  };
  std::vector<Queue> queues(programs.size());
  std::map<std::tuple<Rank, Rank, int>, Line> lines;  // sender, receiver, part
  for (std::size_t r = 0; r < programs.size(); ++r) {
    Job& job = queues[r].add(programs[r]);
    queues[r].begin(job, {});
    queues[r].run(job);
  }
  for (std::vector<Line*> meet(1); !meet.empty();) {
    for (std::size_t r = 0; r < programs.size(); ++r) {
      Queue& queue = queues[r];
      const auto me = static_cast<Rank>(r);
      for (Task task; !queue.post().empty() || queue.take({&task, 1}, 1) > 0;) {
        if (queue.post().empty()) {
          queue.finished(task);
          continue;
        }
        const Task mail = queue.post().pop();
        const Step& step = mail.what();
        if (step.kind == StepKind::kRecv) {
          lines[{step.peer, me, step.part}].receives.push_back(mail);
        } else {
          lines[{me, step.peer, step.part}].sends.push_back(mail);
          queue.posted(mail);
        }
      }
    }
    meet.clear();
    for (auto& [ends, line] : lines)
      if (!line.sends.empty() && !line.receives.empty()) meet.push_back(&line);
    if (meet.empty()) break;
    Line& line = *meet[mix64(++seed) % meet.size()];
    const Task send = line.sends.front(), recv = line.receives.front();
    line.sends.pop_front();
    line.receives.pop_front();
    EXPECT_EQ(send.what().chunk, recv.what().chunk);
    queues[static_cast<std::size_t>(send.what().peer)].finished(recv);
    queues[static_cast<std::size_t>(recv.what().peer)].finished(send);
  }
  return static_cast<int>(
      std::ranges::count_if(queues, [](const Queue& queue) { return queue.active() == 0; }));
}

// A frame with a chunk's sum arrives after all frames that this rank sent of that chunk were received. A receive that
// waits for those sends therefore never deadlocks.
void expect_that_all_end(const char* codec) {
  const std::size_t n = 5'000'000;
  for (const Strategy* strategy : all_strategies()) {
    if (strategy->between != nullptr || !choose_laws(*parse_spec(codec), *strategy).ok()) continue;
    SCOPED_TRACE(std::string(codec) + " by " + std::string(strategy->name));
    const Plan plan = plan_of(*parse_spec(codec), n, strategy->name, n / 5);
    for (const int world : {1, 2, 3, 4, 5, 8, 20})
      for (const int servers : {0, 1, 2}) {
        if (servers > 0 && (!strategy->serves || servers >= world)) continue;
        const Hosts one = *Hosts::parse(std::to_string(world), world);
        std::vector<Program> programs;
        for (Rank me = 0; me < world; ++me) programs.push_back(compile(plan, {me, world, &one, servers}, {}));
        for (std::uint64_t seed = 0; seed < (world < 8 ? 20 : 1); ++seed)
          EXPECT_EQ(ended(programs, seed), world) << servers << " servers, seed " << seed;
      }
  }
}

TEST(Program, ReceivesThatWaitForSendsDoNotDeadlock) {
  for (const char* codec : {"fp32", "onebit", "scalecom"}) expect_that_all_end(codec);
}

// A posted send lets the next message be posted; a completed send also frees its memory for a receive.
TEST(Queue, AReceiveWaitsForTheSendWhoseMemoryItReuses) {
  const std::size_t n = 10'000;
  const Hosts one = *Hosts::parse("2", 2);
  const Plan plan = plan_of(std::span(&n, 1), "ring");
  const Program p = compile(plan, {0, 2, &one}, {});
  Queue queue;
  Job& job = queue.add(p);
  queue.begin(job, {});
  queue.run(job);
  const auto mail = [&] {
    std::vector<Task> out;
    while (!queue.post().empty()) out.push_back(queue.post().pop());
    return out;
  };
  std::vector<Task> first = mail();
  ASSERT_EQ(first.size(), 1U) << "the payload to add";
  EXPECT_EQ(first[0].what().kind, StepKind::kRecv);
  Task encode;
  ASSERT_EQ(queue.take({&encode, 1}, 1), 1U);
  ASSERT_EQ(encode.what().kind, StepKind::kEncode);
  queue.finished(encode);
  std::vector<Task> sends = mail();
  ASSERT_EQ(sends.size(), 1U);
  ASSERT_EQ(sends[0].what().kind, StepKind::kSend);
  queue.posted(sends[0]);
  EXPECT_TRUE(mail().empty()) << "the transport still reads that memory";
  queue.finished(sends[0]);
  const std::vector<Task> second = mail();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].what().kind, StepKind::kRecv);
  const auto offset = [&](const Task& task) {
    return p.slots[static_cast<std::size_t>(task.what().slot)].offset;
  };
  EXPECT_EQ(offset(second[0]), offset(sends[0]));
}

// The memory depends on the parts in flight: a bucket with a hundred times as many parts fits the same window.
TEST(Program, PartsThatAreNeverActiveTogetherShareMemory) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  const auto arena = [](std::string_view codec, std::string_view strategy, std::size_t parts) {
    const PlanTensor bucket[] = {{.key = "t", .n = parts * kPart}};
    const Plan plan = make_plan(bucket, Choices::of({.spec = *parse_spec(codec),
                                                     .strategy = find_strategy(strategy),
                                                     .min_values = 0,
                                                     .part_values = kPart,
                                                     .world = 4}));
    EXPECT_EQ(plan.parts.size(), parts);
    return compile(plan, {1, 4}, {}, {}, nullptr, std::vector<bool>(parts, true));
  };
  for (const std::string_view strategy : {"server", "gather", "ring"})
    for (const std::string_view codec : {"fp32", "fp8", "topk:ratio=0.01"}) {
      const Program few = arena(codec, strategy, 2), many = arena(codec, strategy, 200);
      const std::size_t each = few.arena_bytes / 2;
      const std::size_t window = std::max(min_window({1, 4}), 3 * (each + 4 * kPart)) + each + 4 * kPart;
      EXPECT_LE(many.arena_bytes + 4 * many.staged_values, window) << codec << " by " << strategy;
      if (codec == "fp32") {
        EXPECT_LT(many.arena_bytes * 4, each * 200) << "the window limits the memory";
      }
    }
}

// The number of tasks that one take() returns of a round's first steps, one encode per tensor, after `skip` single
// tasks.
std::size_t takes(std::vector<std::size_t> sizes, std::size_t room, int lanes, std::size_t skip = 0) {
  std::vector<TensorLayout> layout;
  std::size_t first = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    layout.push_back({std::to_string(k), sizes[k], DType::kF32, first, k, 0});
    first += sizes[k];
  }
  Queue queue;
  Job& job = queue.add(
      std::make_unique<Unit>(Member{}, layout, plan_of(sizes, "gather"), std::span<const double>{}), {});
  queue.begin(job, {});
  queue.run(job);
  std::vector<Task> out(room);
  for (; skip > 0; --skip) queue.take(std::span(out).first(1), 1);
  const std::size_t count = queue.take(out, lanes);
  for (std::size_t k = 0; k < count; ++k) EXPECT_EQ(out[k].what().kind, StepKind::kEncode);
  return count;
}

TEST(Queue, several_light_steps_are_taken_at_once) {
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 100), 32, 1), 32U) << "limited by the room";
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 100), 64, 4), 10U) << "one lane's share";
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 1000), 64, 1), 8U) << "limited by the total weight";
  EXPECT_EQ(takes({100'000, 100}, 32, 1), 1U) << "a heavy task is taken alone";
  EXPECT_EQ(takes({100, 100'000}, 32, 1), 1U) << "a heavy task is not added to others";
  EXPECT_EQ(takes({100, 100'000}, 32, 1, 1), 1U);
  EXPECT_EQ(takes({100}, 32, 1, 1), 0U);
}

}  // namespace
}  // namespace tithe::engine
