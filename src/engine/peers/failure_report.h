// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verdict on the failed rank: a pure function of the ranks' failure reports, without clocks, threads or transport.
// Ranks that received the same failure reports derive the same verdict (docs/reference/errors.md, "Who is named").
//
// A failing rank reports once: its finding, and the ranks that are silent to it. A rank that fails because of another
// rank's report repeats that finding, and adds the ranks that are silent to itself.
#include <optional>
#include <string>
#include <vector>

#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe::engine {

// In order of precedence: direct evidence precedes conclusions from silence.
enum class Finding : std::uint8_t {
  kAccused = 0,  // bytes or options of `blamed` are wrong, or this rank's own system refused
  kLeft = 1,     // `blamed` announced its departure
  kGone = 2,     // the transport saw the end of `blamed`
  kSilent = 3,   // `blamed` answers nothing
  kIdle = 4,     // `blamed` answers, but does not hand over its buckets
  kStuck = 5,    // `blamed` answers, but its bytes do not arrive: no rank is blamed
};

// The failure that ends a session. witness: the rank that found it, if it is not this rank.
struct Trouble {
  Finding finding{};
  Status why;
  Rank witness = Status::kNoPeer;
};

struct FailureReport {
  Finding finding{};
  Code code{};
  // The rank that found it: the sender, or the rank whose report it repeats.
  Rank witness = Status::kNoPeer;
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;              // the first that the sender has not committed
  bool finite = true;                   // the sender's last committed round was finite
  std::vector<Rank> silent_peers = {};  // ranks that did not answer the sender
  std::string what = {};
};

// By rank, including this one: its report, if it has reported.
using FailureReports = std::vector<std::optional<FailureReport>>;

// `mine` is this rank; reports[mine] must exist.
Status judge(Rank mine, const FailureReports& reports);

// The round that failed: the first that none of the reporting ranks has committed.
std::uint32_t failed_round(const FailureReports& reports);

// A transport's status for a lost peer means silence if it is kTimeout, and an observed end otherwise.
inline Finding lost(const Status& gone) {
  return gone.code() == Code::kTimeout ? Finding::kSilent : Finding::kGone;
}

// True if a report says that the rank sends no more valid messages.
bool given_up(Rank rank, const FailureReports& reports);

}  // namespace tithe::engine
