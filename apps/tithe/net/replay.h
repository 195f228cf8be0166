// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tithe replay`: training steps of a model, or of one tensor, between local ranks. Compute is a timed wait; gradients
// go through a Session.
//
//   buckets   filled as DistributedDataParallel does; each is handed over when its last tensor is ready
//   compute   takes no processor time: a rank sleeps until a deadline
//   gradients new ones in each step and on each rank, filled in outside the timed region
//   laws      checked in each step, outside the timed region. All ranks hold the same bits (identity). With --n, the
//             sum over ranks of (gradient + residual before - residual after) is the result, for each value (ledger);
//             sums of its gradients are exact, sums of a model's are not
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "advisor/measure/model_list.h"
#include "emulated_hosts.h"
#include "rank_board.h"
#include "tithe/choices.h"
#include "tithe/session.h"
#include "verb.h"

namespace tithe::cli {

struct ReplayArgs {
  std::string model;             // or, instead:
  std::optional<std::size_t> n;  // values of the only tensor, which has the key kOneTensor and no compute
  int ranks = 4;
  std::string link = "none";
  std::size_t queue_bytes = kSwitchQueueBytes;
  std::string card = kCardModes[0];
  double delay_ms = 0;  // latency between two hosts, one way
  bool set_link = false;
  std::string transport;         // empty: the usual one between processes
  bool threads = false;          // ranks are threads of one process, as the transport decides
  bool cards_may_round = false;  // the transport has lossy_card=on
  std::string choices_file;
  int steps = 10;
  double bucket_cap_mb = 25;
  double compute_scale = 1;
  std::string hand_over = "ready";
  SessionOptions session;

  bool keeps_ledger() const { return n.has_value(); }
};

inline constexpr const char* kOneTensor = "gradient";
// Steps for connections, buffers, pages and the first round's plan; checked, not timed.
inline constexpr int kWarmUpSteps = 2;

// The measurements of one rank in one step, on the board.
struct StepNumbers {
  double step_ms;     // from the start of forward to the end of commit
  double late_ms;     // longest delay of a hand-over after its bucket was ready
  double cpu_s;       // processor time of the process
  double bytes_sent;  // bytes of frames
  double wire_bytes;  // bytes that the link of the rank's host counted; 0 without a link
  std::uint64_t result_hash;
  double apart;      // if cards may round: largest difference between a value and rank 0's
  double largest;    // of the ledger: largest |gradient + residual before| of this rank
  double imbalance;  // of the ledger: largest |sum over ranks - result|; 0 on all ranks but the last
};

// The board holds one row for each rank and step, including warm-up, and then one number for each value if the ledger
// is checked or cards may round.
std::size_t numbers_needed(const ReplayArgs& args, const bench::ModelList& model);
StepNumbers& numbers_of(RankBoard& board, const ReplayArgs& args, Rank rank, int step);

// The larger one, or NaN if one is NaN.
inline double max_or_nan(double a, double b) { return b > a || std::isnan(b) ? b : a; }

double forward_ms(const bench::ModelList& model, const ReplayArgs& args);
double compute_ms(const bench::ModelList& model, const ReplayArgs& args);  // forward and backward

// Runs all steps of rank `me`. Rank 0 sets `plan` to its Session::plan_text().
Status run_rank(const ReplayArgs& args, const bench::ModelList& model, Rank me,
                std::unique_ptr<Transport> transport, RankBoard& board, std::string* plan);

// The report on the numbers of all ranks.
Report report_of(const ReplayArgs& args, const bench::ModelList& model, const Choices& choices,
                 const Hosts& hosts, RankBoard& board, const std::string& plan);

}  // namespace tithe::cli
