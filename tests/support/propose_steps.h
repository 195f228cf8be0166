// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of two tensors in one bucket, for tests of Session::propose.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.h"

namespace tithe::testing {

using Floats = std::vector<float>;

inline Floats dyadic(std::size_t n, int salt) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] =
        static_cast<float>(static_cast<int>((i * 37 + static_cast<std::size_t>(salt) * 101) % 64) - 32) / 8;
  return v;
}

// Tensors "a" and "b", in one bucket.
struct Step {
  Floats a, b;
};
inline Step gradient(Rank rank, int round) {
  return {dyadic(600, 7 * rank + round), dyadic(400, 3 * rank + 5 * round)};
}
inline Status play(Session& session, Step& s) {
  const Tensor bucket[] = {{"a", s.a.data(), s.a.size()}, {"b", s.b.data(), s.b.size()}};
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}
inline void play_all(Ranks& ranks, int round, std::vector<Step>* results = nullptr) {
  ranks.each([&](Rank r) {
    Step s = gradient(r, round);
    const Status status = play(ranks[r], s);
    EXPECT_TRUE(status.ok()) << "rank " << r << ", round " << round << ": " << text(status);
    if (results != nullptr) (*results)[at(r)] = s;
  });
}
inline Step unsent(const Session& session) {
  Step s{Floats(600), Floats(400)};
  EXPECT_TRUE(session.residual("a", s.a).ok());
  EXPECT_TRUE(session.residual("b", s.b).ok());
  return s;
}

inline SessionOptions with(std::string codec, int lanes = 0) {
  return {.codec = std::move(codec), .strategy = "server", .lanes = lanes, .average = false, .min_values = 0};
}

// Plays rounds from `first` until the proposal has this state on all ranks; returns the next round. Without lanes the
// number of rounds is fixed; with lanes it depends on the threads.
inline int play_until(Ranks& ranks, int first, Proposal::State state) {
  for (int round = first; round < first + 10'000; ++round) {
    play_all(ranks, round);
    bool all = true;
    for (Rank r = 0; r < ranks.world(); ++r) all = all && ranks[r].proposal().state == state;
    if (all) return round + 1;
  }
  ADD_FAILURE() << "the ranks never had this state: rank 0 has " << name(ranks[0].proposal().state) << " "
                << text(ranks[0].proposal().why);
  return first;
}

}  // namespace tithe::testing
