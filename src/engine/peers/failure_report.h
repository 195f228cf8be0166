// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verdict on who is to blame: a function of what ranks have said, and of nothing else. No clocks, no threads, no
// transport; ranks that heard the same testimonies reach the same verdict (docs/reference/errors.md, "Who is named").
//
// A rank that fails says once what it found, and whom it does not hear. A rank that fails because another one
// said so repeats that one's finding, and adds whom it does not hear itself.
#include <optional>
#include <string>
#include <vector>

#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe::engine {

// In the order in which they count: what was seen outright before what was concluded from silence.
enum class Finding : std::uint8_t {
  kAccused = 0,  // bytes or options of `blamed` are wrong, or this rank's own system refused
  kLeft = 1,     // `blamed` said that it leaves
  kGone = 2,     // the transport says that `blamed` has ended
  kSilent = 3,   // `blamed` answers nothing
  kIdle = 4,     // `blamed` answers, but does not hand over what others wait for
  kStuck = 5,    // `blamed` answers, but bytes on the way from it do not move: nobody's fault
  kCount
};

// The trouble that ends a session, as it is found. witness: the rank that found it, where that is not this one.
struct Trouble {
  Finding finding{};
  Status why;
  Rank witness = Status::kNoPeer;
};

struct Testimony {
  Finding finding{};
  Code code{};
  Rank witness = Status::kNoPeer;  // who found it; the sender, or whom it repeats
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;         // the first that the sender has not committed
  bool finite = true;              // the last that it has committed was
  std::vector<Rank> unheard = {};  // whom the sender asked and does not hear
  std::string what = {};
};

// By rank, this rank's own included: what each has said, if it has.
using Testimonies = std::vector<std::optional<Testimony>>;

// `mine` is this rank; said[mine] must be there.
Status judge(Rank mine, const Testimonies& said);

// The round that failed: the first that nobody among those who spoke has committed.
std::uint32_t failed_round(const Testimonies& said);

// A transport's word that a peer is gone is evidence of an end that it saw, or (kTimeout) of silence alone.
inline Finding lost(const Status& gone) {
  return gone.code() == Code::kTimeout ? Finding::kSilent : Finding::kGone;
}

// True if some testimony says that nothing more can be heard of this rank, or nothing that counts.
bool given_up(Rank rank, const Testimonies& said);

}  // namespace tithe::engine
