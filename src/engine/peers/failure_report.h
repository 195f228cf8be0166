// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verdict on the failed rank: a pure function of the ranks' failure reports, without clocks, threads or transport.
// Ranks that received the same failure reports derive the same verdict (docs/reference/errors.md, "Who is named").
//
// A failing rank reports once: its finding, and the ranks that it does not hear. A rank that fails because of another
// rank's report repeats that finding, and adds the ranks that it does not hear itself.
#include <optional>
#include <string>
#include <vector>

#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe::engine {

// In order of weight: direct evidence before conclusions from silence.
enum class Finding : std::uint8_t {
  kAccused = 0,  // bytes or options of `blamed` are wrong, or this rank's own system refused
  kLeft = 1,     // `blamed` said that it leaves
  kGone = 2,     // the transport says that `blamed` has ended
  kSilent = 3,   // `blamed` answers nothing
  kIdle = 4,     // `blamed` answers, but does not hand over what others wait for
  kStuck = 5,    // `blamed` answers, but bytes on the way from it do not move: nobody's fault
  kCount
};

// The failure that ends a session, as found. witness: the rank that found it, if it is another one.
struct Trouble {
  Finding finding{};
  Status why;
  Rank witness = Status::kNoPeer;
};

struct FailureReport {
  Finding finding{};
  Code code{};
  Rank witness = Status::kNoPeer;  // who found it; the sender, or whom it repeats
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;         // the first that the sender has not committed
  bool finite = true;              // the last that it has committed was
  std::vector<Rank> unheard = {};  // whom the sender asked and does not hear
  std::string what = {};
};

// By rank, including this one: its report, if it has reported.
using FailureReports = std::vector<std::optional<FailureReport>>;

// `mine` is this rank; reports[mine] must exist.
Status judge(Rank mine, const FailureReports& reports);

// The round that failed: the first that none of the reporting ranks has committed.
std::uint32_t failed_round(const FailureReports& reports);

// A transport's word that a peer is gone is evidence of an end that it saw, or (kTimeout) of silence alone.
inline Finding lost(const Status& gone) {
  return gone.code() == Code::kTimeout ? Finding::kSilent : Finding::kGone;
}

// True if a report says that this rank sends nothing more, or nothing valid.
bool given_up(Rank rank, const FailureReports& reports);

}  // namespace tithe::engine
