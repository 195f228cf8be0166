// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of `tithe replay`: steps of a model whose compute is a timed wait and whose gradients go through a Session.
//
//   as DDP    buckets as DistributedDataParallel fills them, each handed over when its last tensor is ready
//   asleep    compute takes no processor time: a rank sleeps until a deadline
//   changing  gradients are new in every step and on every rank; they are made outside the time that is measured
#include <optional>
#include <string>
#include <vector>

#include "emulated_hosts.h"
#include "measure/model_list.h"
#include "sync_board.h"
#include "tithe/session.h"

namespace tithe::cli {

// When buckets are handed over.
enum class HandOver : std::uint8_t {
  kReady,  // each when it is ready
  kEnd,    // all when backward has ended
  kTurns,  // when it is ready, and not before the one before it has its result
};

struct ReplayArgs {
  std::string model;
  int ranks = 4;
  std::string link = "none";
  std::size_t queue_bytes = kSwitchQueueBytes;
  std::string card = kCardModes[0];
  double delay_ms = 0;  // of the way between two hosts
  bool tell_link = false;
  std::string transport;  // empty: ucx
  std::string choices_file;
  int steps = 10;
  double bucket_cap_mb = 25;
  double compute_scale = 1;
  std::string hand_over = "ready";
  SessionOptions session;  // codec, strategy, choices, hosts, lanes, pacer, min_values, part_values
};

inline constexpr int kWarmUpSteps = 2;  // connections, buffers, pages, the first round's plan; not timed

// A rank's findings of a timed step: a row of the board's numbers.
struct StepNumbers {
  double step_ms;     // from the start of forward to the end of commit
  double late_ms;     // the most that a bucket came after it was ready
  double cpu_s;       // of the whole process
  double bytes_sent;  // frames
  double wire_bytes;  // what the link of its host counted; 0 without one
};
StepNumbers& numbers_of(SyncBoard& board, int steps, Rank rank, int step);
std::size_t numbers_needed(int ranks, int steps);

// In the order in which they are handed over.
std::vector<bench::TensorSpan> buckets_of(const bench::ModelList& model, const ReplayArgs& args);

double forward_ms(const bench::ModelList& model, const ReplayArgs& args);
double compute_ms(const bench::ModelList& model, const ReplayArgs& args);  // forward and backward

// `plan`: Session::plan_text() of rank 0. With a link, ranks are on emulated hosts.
Status replay_as_rank(const ReplayArgs& args, const bench::ModelList& model, const Hosts& hosts,
                      const std::optional<ShapedLink>& link, Rank me, SyncBoard& board, std::string* plan);

}  // namespace tithe::cli
