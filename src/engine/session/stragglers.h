// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stragglers are ranks whose programs hand their buckets over later than others' do. Lateness finds them: every rank
// says at the end of a round how long its program took for it outside of the session, so all of them see the same.
//
//   certain   over kLateWindow rounds, and by at least kLeastLate
//   common    what all ranks do at once, such as an evaluation, makes nobody late
#include <cstdint>
#include <span>
#include <vector>

#include "engine/peers/control.h"
#include "tithe/choices.h"
#include "tithe/session.h"

namespace tithe::engine {

inline constexpr std::size_t kLateWindow = 32;  // rounds

// SessionOptions::stragglers, read.
struct Stragglers {
  double share = 0.25;        // of the time that others take: so much more is late; 0: nobody ever is
  std::uint32_t without = 0;  // so many rounds in a row go on without a rank; 0: none
  int ranks = 1;              // and without so many ranks at the same time
  std::uint32_t level = 0;    // before and after every such round all are waited for; 0: there are none
  bool proxied() const { return without > 0; }
  // True where the round of this number may go on without somebody.
  bool may_miss(std::uint64_t round) const {
    return proxied() && (level == 0 || (round % level != 0 && (round + 1) % level != 0));
  }
};
Result<Stragglers> parse_stragglers(std::string_view text);
// kInvalid or kUnsupported, with the name of what cannot go on without a rank's own gradient.
Status check_stragglers(const Stragglers& asked, const SessionOptions& options);
Status check_stragglers(const Stragglers& asked, const Choices& choices);

struct Straggler {
  Rank rank = Status::kNoPeer;  // nobody
  double share = 0;             // how much longer than the median of all it takes
  std::uint64_t own_ns = 0;     // for a round, of its own
  std::uint64_t cost_ns = 0;    // by which the next one of all is earlier, per round
};

class StragglerDetector {
 public:
  StragglerDetector(double share, int world)
      : share_(share), sums_(static_cast<std::size_t>(world)), means_(sums_.size()) {}
  // Takes how long each rank was away in a round, by rank. True: a window is over.
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
