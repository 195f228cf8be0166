// SPDX-License-Identifier: Apache-2.0
// Calls of the C ABI that examples/c/average.c does not contain.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tithe/session.h"
#include "tithe/tithe.h"

namespace {

constexpr std::size_t kN = 500;

tithe_session* open(tithe_transport* transport, const char* const* members, uint64_t epoch) {
  tithe_options o;
  tithe_options_init(&o);
  o.codec = "topk:ratio=0.1";
  o.min_values = 0;
  o.lanes = 0;
  o.members = members;
  o.epoch = epoch;
  o.undo = 1;
  tithe_session* session = nullptr;
  tithe_error error;
  EXPECT_EQ(tithe_session_open(transport, &o, &session, &error), TITHE_OK) << error.what;
  return session;
}

void step(const std::vector<tithe_session*>& ranks, float scale) {
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      std::vector<float> v(kN);
      for (std::size_t i = 0; i < kN; ++i) v[i] = scale * static_cast<float>(i + r);
      const tithe_tensor t{"w", v.data(), kN, TITHE_F32, 0, nullptr};
      uint64_t ticket = 0;
      tithe_error error;
      ASSERT_EQ(tithe_sync(ranks[r], &t, 1, &ticket, &error), TITHE_OK) << error.what;
      ASSERT_EQ(tithe_commit(ranks[r], &error), TITHE_OK) << error.what;
    });
  for (std::thread& t : threads) t.join();
}

std::vector<float> residual(const tithe_session* session) {
  std::vector<float> out(kN);
  EXPECT_EQ(tithe_residual(session, "w", out.data(), kN, nullptr), TITHE_OK);
  return out;
}

TEST(CAbi, ReformAndUndo) {
  const char* const names[] = {"a", "b", "c"};
  tithe_transport* transports[3];
  ASSERT_EQ(tithe_open_loop(3, transports, nullptr), TITHE_OK);
  std::vector<tithe_session*> ranks;
  for (tithe_transport* t : transports) ranks.push_back(open(t, names, 0));
  step(ranks, 1);
  const std::vector<float> before = residual(ranks[0]);
  step(ranks, 3);
  tithe_error error;
  for (tithe_session* s : ranks) ASSERT_EQ(tithe_undo(s, &error), TITHE_OK) << error.what;
  EXPECT_EQ(residual(ranks[0]), before);
  EXPECT_EQ(tithe_undo(ranks[0], &error), TITHE_INVALID);

  void* bytes[3];
  size_t counts[3];
  for (int r = 0; r < 3; ++r) ASSERT_EQ(tithe_state(ranks[r], &bytes[r], &counts[r], nullptr), TITHE_OK);
  void* common = nullptr;
  size_t common_bytes = 0;
  ASSERT_EQ(tithe_common_state(ranks[0], &common, &common_bytes, nullptr), TITHE_OK);
  EXPECT_LT(common_bytes, counts[0]);

  // "b" is lost, and "d" joins.
  const char* const others[] = {"c", "d", "a"};
  tithe_transport* again[3];
  ASSERT_EQ(tithe_open_loop(3, again, nullptr), TITHE_OK);
  tithe_session_close(ranks[1]);
  ASSERT_EQ(tithe_reform(ranks[2], again[0], others, 1, &error), TITHE_OK) << error.what;
  ASSERT_EQ(tithe_reform(ranks[0], again[2], others, 1, &error), TITHE_OK) << error.what;
  ranks[1] = open(again[1], others, 1);
  const void* given[] = {common};
  ASSERT_EQ(tithe_restore_states(ranks[1], given, &common_bytes, 1, 0, &error), TITHE_OK) << error.what;
  EXPECT_EQ(residual(ranks[0]), before);
  EXPECT_EQ(residual(ranks[1]), std::vector<float>(kN));
  EXPECT_EQ(tithe_rank(ranks[2]), 0);
  step(ranks, 2);
  tithe_stats stats{};
  stats.size = sizeof stats;
  ASSERT_EQ(tithe_session_stats(ranks[0], &stats, nullptr), TITHE_OK);
  EXPECT_EQ(stats.ranks_lost, 1U);
  EXPECT_EQ(stats.epoch, 1U);
  EXPECT_EQ(stats.rounds_undone, 1U);

  // Two ranks resume from the states of three; the lost rank's residual is recorded as lost.
  tithe_transport* pair[2];
  ASSERT_EQ(tithe_open_loop(2, pair, nullptr), TITHE_OK);
  const char* const two[] = {"a", "c"};
  std::vector<tithe_session*> fewer = {open(pair[0], two, 0), open(pair[1], two, 0)};
  for (tithe_session* s : fewer)
    ASSERT_EQ(tithe_restore_states(s, bytes, counts, 3, 1, &error), TITHE_OK) << error.what;
  ASSERT_EQ(tithe_session_stats(fewer[0], &stats, nullptr), TITHE_OK);
  EXPECT_GT(stats.values_lost, 0U);
  EXPECT_EQ(residual(fewer[0]), before);
  EXPECT_EQ(tithe_restore_states(fewer[0], nullptr, nullptr, 1, 0, &error), TITHE_INVALID);
  EXPECT_EQ(tithe_reform(fewer[0], nullptr, two, 1, &error), TITHE_INVALID);

  for (void* b : bytes) tithe_free(b);
  tithe_free(common);
  std::vector<std::thread> closing;
  for (tithe_session* s : {ranks[0], ranks[1], ranks[2], fewer[0], fewer[1]})
    closing.emplace_back([s] { tithe_session_close(s); });
  for (std::thread& t : closing) t.join();
}

// A program with an event loop over file descriptors: the `ended` callback writes to a pipe when a bucket has its
// result, and the loop reads the ticket from it.
TEST(CAbi, TheEndedCallbackCanWakeAPollLoop) {
  struct Program {
    int pipe[2] = {-1, -1};
    static void ended(void* user, uint64_t ticket, const tithe_error* how) {
      const auto code = static_cast<unsigned char>(how->code);
      const unsigned char message[2] = {static_cast<unsigned char>(ticket), code};
      EXPECT_EQ(write(static_cast<Program*>(user)->pipe[1], message, 2), 2);
    }
    // The ticket and its status code.
    std::pair<uint64_t, int> next() {
      pollfd wait{.fd = pipe[0], .events = POLLIN, .revents = 0};
      unsigned char message[2] = {};
      EXPECT_EQ(::poll(&wait, 1, 10'000), 1);
      EXPECT_EQ(read(pipe[0], message, 2), 2);
      return {message[0], message[1]};
    }
  } programs[2];
  tithe_transport* transports[2];
  ASSERT_EQ(tithe_open_loop(2, transports, nullptr), TITHE_OK);
  tithe_session* ranks[2];
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(pipe(programs[r].pipe), 0);
    tithe_options o;
    tithe_options_init(&o);
    EXPECT_EQ(o.ended, nullptr);
    EXPECT_EQ(o.lanes, -1);  // -1: the number of free cores
    o.codec = "fp32";
    o.ended = Program::ended;
    o.user = &programs[r];
    ASSERT_EQ(tithe_session_open(transports[r], &o, &ranks[r], nullptr), TITHE_OK);
  }
  const auto rank = [&](int r) {
    float flat[1000];  // two tensors in one array, each with its key
    for (int i = 0; i < 1000; ++i) flat[i] = static_cast<float>(i + r);
    const tithe_tensor slices[] = {{"a", flat, 600, TITHE_F32, 0, nullptr},
                                   {"b", flat + 600, 400, TITHE_F32, 0, nullptr}};
    uint64_t ticket = 0;
    tithe_error error;
    int done = 1;
    EXPECT_EQ(tithe_poll(ranks[r], 1, &done, &error), TITHE_INVALID);
    EXPECT_EQ(done, 0);
    ASSERT_EQ(tithe_sync(ranks[r], slices, 2, &ticket, &error), TITHE_OK) << error.what;
    EXPECT_EQ(programs[r].next(), std::pair(ticket, static_cast<int>(TITHE_OK)));
    ASSERT_EQ(tithe_poll(ranks[r], ticket, &done, &error), TITHE_OK) << error.what;
    EXPECT_EQ(done, 1);
    EXPECT_EQ(flat[700], 700.5F);
    ASSERT_EQ(tithe_wait(ranks[r], ticket, &error), TITHE_OK) << error.what;
    ASSERT_EQ(tithe_commit(ranks[r], &error), TITHE_OK) << error.what;
    EXPECT_EQ(tithe_poll(ranks[r], ticket, nullptr, &error), TITHE_INVALID);
    if (r == 1) return tithe_session_close(ranks[1]);
    // The call fails if the rank has already seen the loss.
    if (tithe_sync(ranks[0], slices, 1, &ticket, &error) == TITHE_OK) {
      EXPECT_EQ(programs[0].next(), std::pair(ticket, static_cast<int>(TITHE_PEER_LOST)));
    }
    EXPECT_EQ(tithe_poll(ranks[0], ticket, &done, &error), TITHE_PEER_LOST);
    EXPECT_EQ(error.peer, 1);
    tithe_session_close(ranks[0]);
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  for (const Program& p : programs)
    for (const int fd : p.pipe) close(fd);
}

// A flat tensor can be cut in any way: residuals belong to the keys of the slices, wherever the slices are.
TEST(CAbi, SlicesOfAFlatTensorHaveOwnResiduals) {
  tithe_transport* transports[2];
  ASSERT_EQ(tithe_open_loop(2, transports, nullptr), TITHE_OK);
  const char* const names[] = {"a", "b"};
  tithe_session* ranks[2] = {open(transports[0], names, 0), open(transports[1], names, 0)};
  std::vector<float> unsent[2][2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      for (int round = 0; round < 2; ++round) {
        std::vector<float> flat(2 * kN);
        for (std::size_t i = 0; i < flat.size(); ++i)
          flat[i] = static_cast<float>(i % kN + static_cast<std::size_t>(r));
        float* const first = flat.data() + (round == 0 ? 0 : kN);  // the slices exchange their positions
        float* const second = flat.data() + (round == 0 ? kN : 0);
        const tithe_tensor slices[] = {{"x", first, kN, TITHE_F32, 0, nullptr},
                                       {"y", second, kN, TITHE_F32, 0, nullptr}};
        uint64_t ticket = 0;
        tithe_error error;
        ASSERT_EQ(tithe_sync(ranks[r], slices, 2, &ticket, &error), TITHE_OK) << error.what;
        ASSERT_EQ(tithe_commit(ranks[r], &error), TITHE_OK) << error.what;
        for (int k = 0; k < 2; ++k) {
          unsent[r][k].resize(kN);
          ASSERT_EQ(tithe_residual(ranks[r], slices[k].key, unsent[r][k].data(), kN, &error), TITHE_OK);
        }
      }
    });
  for (std::thread& t : threads) t.join();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(unsent[r][0], unsent[r][1]) << "the same values under two keys";
    EXPECT_NE(unsent[r][0], std::vector<float>(kN));
  }
  std::thread closing([&] { tithe_session_close(ranks[1]); });
  tithe_session_close(ranks[0]);
  closing.join();
}

// options.def makes the C struct, its defaults and its conversions.
TEST(CAbi, NullAndInitialOptionsHaveTheSessionDefaults) {
  const tithe::SessionOptions defaults;
  tithe_options o;
  tithe_options_init(&o);
  EXPECT_EQ(o.codec, defaults.codec);
  EXPECT_EQ(o.stragglers, defaults.stragglers);
  EXPECT_EQ(o.timeout, defaults.timeout.count());
  EXPECT_EQ(o.part_values, defaults.part_values);
  EXPECT_EQ(o.lanes, -1) << "unset";
  EXPECT_EQ(o.average, 1);
  for (const bool without_codec : {false, true}) {
    tithe_transport* transport = nullptr;
    ASSERT_EQ(tithe_open_loop(1, &transport, nullptr), TITHE_OK);
    o.pacer = o.device = o.schedule = o.choices = o.trace = nullptr;
    if (without_codec) o.codec = nullptr;
    tithe_session* session = nullptr;
    tithe_error error;
    EXPECT_EQ(tithe_session_open(transport, &o, &session, &error), without_codec ? TITHE_INVALID : TITHE_OK)
        << error.what;
    if (session != nullptr) tithe_session_close(session);
  }
}

// Every rank's blob has one byte, also this rank's, which is longer.
int gather_wrong_sizes(void*, const void*, size_t bytes, void* out) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const uint64_t size = 1;
    if (bytes == sizeof size) std::memcpy(static_cast<char*>(out) + rank * bytes, &size, sizeof size);
  }
  return 0;
}

TEST(CAbi, RefusesAnAllGatherThatReturnsWrongSizes) {
  tithe_transport* transport = nullptr;
  tithe_error error;
  EXPECT_EQ(tithe_open_transport("tcp", 0, 2, gather_wrong_sizes, nullptr, &transport, &error), TITHE_CORRUPT)
      << error.what;
  EXPECT_NE(std::strstr(error.what, "inconsistent sizes"), nullptr) << error.what;
  EXPECT_EQ(transport, nullptr);
}

}  // namespace
