// SPDX-License-Identifier: Apache-2.0
#pragma once
// A seed's scenario: a job of some ranks and rounds, network conditions, and at most one fault.
#include <string>
#include <vector>

#include "chaos/network.h"
#include "support/law_cases.h"

namespace tithe::chaos {

inline constexpr std::chrono::milliseconds kTimeout{2000};  // of the network's clock

// Points in a rank's sequence of calls at which a fault can strike.
enum Step : int { kBeforeSync, kBetweenSyncs, kBeforeWait, kBeforeCommit, kAfterCommit, kSteps };

struct Shape {
  std::string key;
  std::size_t n = 0, row = 0;
};

// A call that fails there, the n-th time from the fault's round on, once or for good (gpu/fake_gpu.h).
struct DriverFault {
  std::string call;  // "*": any; "kernel" and "copy": work, which breaks the context
  unsigned nth = 1;
  bool for_good = false;
  int error() const { return call == "kernel" || call == "copy" ? 719 : call == "cuMemAlloc" ? 2 : 1; }
};

using Buckets = std::vector<std::vector<std::size_t>>;  // numbers of tensors

struct Scenario {
  std::uint64_t seed = 0;
  int world = 2, lanes = 0, rounds = 2;
  testing::LawCase law;
  std::string strategy;
  RoundKind kind = RoundKind::kAllReduce;  // of all buckets
  std::vector<Shape> tensors;
  std::vector<Buckets> buckets;  // by round
  std::size_t min_values = 0, part_values = 0;
  testing::Data data = testing::Data::kDyadic;
  bool average = false;
  NetworkConditions conditions;
  Fault fault;
  double place = 0;  // of the fault, as a fraction of the events of an undisturbed run
  int nan_round = -1;
  Rank nan_rank = 0;
  std::size_t nan_tensor = 0;
  bool infinite = false;   // Inf instead of NaN
  int extreme_round = -1;  // one tensor's values are near the largest float, on one rank
  bool saves = false;      // every rank saves its state after every commit
  int restart = -1;        // after this many rounds all ranks save, end, and restart
  std::string pacer = "off";
  std::uint32_t impatient = 0;  // by bit: ranks that wait for each bucket before they pass the next one
  std::uint32_t hasty = 0;      // by bit: ranks that leave the remaining waits to commit()
  int propose_at = -1;          // before this round rank 0 proposes other choices
  std::string proposal;
  std::string hosts;         // the ranks on each host
  std::uint32_t on_gpu = 0;  // by bit: ranks with tensors on a GPU
  std::string device = "off";
  DriverFault driver;

  SessionOptions options(int with_lanes) const;
  std::vector<float> gradient(std::size_t tensor, Rank rank, int round) const;
  // Under a kind in which ranks own ranges: value `at` of the tensor is this rank's.
  bool owns(std::size_t tensor, Rank rank, std::size_t at) const;
  bool sends_nan() const;  // the non-finite value is sent
};

Scenario draw(std::uint64_t seed);
// A readable description of a few lines.
std::string account(const Scenario& scenario);

}  // namespace tithe::chaos
