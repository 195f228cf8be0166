// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a scenario's sessions over a Network and records the data for the oracles.
#include <optional>

#include "chaos/scenario.h"

namespace tithe::chaos {

using Bytes8 = std::vector<std::uint8_t>;

struct RankRound {
  testing::Values result, residual;  // by tensor, after commit()
  bool committed = false, dropped = false;
  std::string choices;  // at the start of the round
  Bytes8 saved;         // if the scenario saves
};

struct RankEnd {
  Status status;      // the first call that failed
  std::string where;  // which call that was
  int round = -1;     // its round; -1: none failed
  Time at{};
  bool left = false;  // it closed its session on purpose
  int committed = 0;  // rounds, counted from the job's first
  Status save;        // of state(), at the end
  Bytes8 state;
};

struct RunRecord {
  std::vector<std::vector<RankRound>> rounds;  // by rank and round
  std::vector<RankEnd> ends;                   // by rank
  std::vector<Counts> counts;                  // by rank
  std::vector<std::string> refused;            // restores that failed
  std::string gpu;                             // errors at the GPU
  bool hung = false, struck = false;
  std::string clash;  // of memory (network.h)
  Time struck_at{};
  std::string changed;
};

struct Run {
  NetworkConditions conditions;
  Fault fault;
  int lanes = 0;
  int from = 0, to = 0;                         // rounds
  const std::vector<Bytes8>* states = nullptr;  // to begin from
  bool gpus = true;                             // else all tensors are in host memory
};

RunRecord run(const Scenario& scenario, const Run& how);

}  // namespace tithe::chaos
