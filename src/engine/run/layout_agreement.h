// SPDX-License-Identifier: Apache-2.0
#pragma once
// The agreement of all ranks on layouts. Before the first round of a layout every rank sends a card; the layout is
// agreed if all cards are equal. The card also announces the layout's first entry in the bucket order.
//
// Owns the job numbers and the number of agreed layouts; the received cards are in Peer. A failed Status ends the
// session. No transport and no clock. Under the runner's mutex.
#include "engine/run/runner_state.h"

namespace tithe::engine {

class LayoutAgreement {
 public:
  explicit LayoutAgreement(RunnerState& state) : state_(state) {}

  void write_card(Job& job);
  // Returns the entry for the job's bucket in round `round`. Writes the job's card if it was not sent yet.
  Announcement next_entry(Job& job, std::uint32_t round);
  // Returns the entry for the end of the round.
  Announcement end_entry();
  // Adds a card of a peer.
  Status take_card(Rank peer, Card& card);
  // Compares the cards of all ranks, layout by layout, as far as they have arrived.
  Status match_cards();

  // The job number that rank 0 drew in this session's first round; 0: no round has begun.
  std::uint64_t job() const { return job_; }
  void set_announced_job(std::uint64_t job) { announced_job_ = job; }  // Announcement::job

 private:
  RunnerState& state_;
  std::size_t matched_ = 0;  // layouts whose cards were compared: a prefix
  std::uint64_t job_ = 0;
  std::uint64_t announced_job_ = 0;
};

}  // namespace tithe::engine
