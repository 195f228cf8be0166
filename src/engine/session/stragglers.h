// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stragglers are ranks whose programs hand over their buckets later than other ranks. At the end of a round every
// rank reports the time that its program spent outside of the session, so all ranks detect the same straggler.
//
//   certain   a straggler is late over kLateWindow rounds, and by at least kMinLate
//   common    a delay that all ranks have at once, such as an evaluation, counts for no rank
#include <cstdint>
#include <span>
#include <vector>

#include "engine/peers/control.h"
#include "tithe/choices.h"
#include "tithe/session.h"

namespace tithe::engine {

inline constexpr std::size_t kLateWindow = 32;  // rounds

// SessionOptions::stragglers, parsed.
struct Stragglers {
  double share = 0.25;        // the delay that counts as late, relative to the median; 0: none
  std::uint32_t without = 0;  // rounds in a row that may run without a rank's program; 0: none
  int ranks = 1;              // ranks that may be missing at the same time
  // All ranks take part before and after every `level`-th round; 0: no such rounds.
  std::uint32_t level = 0;
  bool proxied() const { return without > 0; }
  // True if this round may run without some ranks' programs.
  bool may_miss(std::uint64_t round) const {
    return proxied() && (level == 0 || (round % level != 0 && (round + 1) % level != 0));
  }
};
Result<Stragglers> parse_stragglers(std::string_view text);
// kInvalid or kUnsupported, with the option that requires a rank's own gradient.
Status check_stragglers(const Stragglers& stragglers, const SessionOptions& options);
Status check_stragglers(const Stragglers& stragglers, const Choices& choices);

struct Straggler {
  Rank rank = Status::kNoPeer;  // kNoPeer: no straggler
  double share = 0;             // its delay relative to the median of all ranks
  std::uint64_t own_ns = 0;     // time per round outside of the session
  std::uint64_t cost_ns = 0;    // time per round that all ranks would save without it
};

class StragglerDetector {
 public:
  StragglerDetector(double share, int world)
      : share_(share), sums_(static_cast<std::size_t>(world)), means_(sums_.size()) {}
  // Takes each rank's time outside of the session in a round. Returns true at the end of a window.
  bool take(std::span<const std::uint64_t> away_ns);
  const Straggler& found() const { return found_; }  // in the last window

 private:
  struct Sum {
    std::uint64_t away = 0, cost = 0;
  };
  const double share_;
  std::vector<Sum> sums_;
  std::vector<std::uint64_t> means_;  // reused
  std::size_t rounds_ = 0;
  Straggler found_;
};

}  // namespace tithe::engine
