// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inside world.h: how long a step lasts at least, so that one that cannot end before a limit is given up at once.
//
//   at least   what links have still to carry takes its time at their full rate, what a rank has still to compute keeps
//              its lanes busy, and the messages that it has still to hand over and to take keep its communication lane
//              busy: nothing ends before all of that is over
//   ready      what a bucket brings cannot begin before the bucket is ready
#include <map>
#include <vector>

#include "advice/sim/classes.h"
#include "advice/sim/step_timeline.h"

namespace tithe::sim {

// Links of host 0, where few ranks stand for all.
inline constexpr int kUpOfFew = 0, kDownOfFew = 1, kInsideOfFew = 2;
// The links of a message from a rank that is simulated, as the world counts them, and its latency.
Seconds way_of(const Cluster& cluster, const Classes& classes, Rank from, Rank to, std::vector<int>& links);

class Outlook {
 public:
  Outlook(const Cluster& cluster, const Costs& costs, const Classes& classes,
          const std::vector<double>& rates, int lanes)
      : cluster_(cluster),
        costs_(costs),
        classes_(classes),
        rates_(rates),
        lanes_(lanes),
        all_{std::vector<double>(rates.size()),
             std::vector<Seconds>(static_cast<std::size_t>(classes.seats())),
             std::vector<Seconds>(static_cast<std::size_t>(classes.seats()))} {}

  // Parts in the order in which their buckets are ready.
  void add(const Script& script, Seconds ready);
  // When the step ends at the earliest, before it has begun.
  Seconds at_start() const;
  // The earliest end by what is left at `now`: for a link that has carried so many bytes; for a rank that has begun so
  // many seconds of its computing and of handling messages.
  Seconds of_link(int link, double carried, Seconds now) const;
  Seconds of_seat(Rank seat, Seconds computed, Seconds handled, Seconds now) const;

 private:
  struct Load {
    std::vector<double> bytes;       // by link
    std::vector<Seconds> computing;  // by seat
    std::vector<Seconds> handling;   // likewise, of messages
  };
  struct Waiting {
    const Load* load;
    Seconds ready;
  };
  const Load& of(const Script& script);
  // The light steps of a rank run on its communication lane.
  double lanes(std::size_t seat) const { return 1 + cluster_.lanes(static_cast<Rank>(seat), lanes_); }

  const Cluster& cluster_;
  const Costs& costs_;
  const Classes& classes_;
  const std::vector<double>& rates_;
  const int lanes_;
  Load all_;
  std::vector<Waiting> parts_;
  std::map<const Script*, Load> known_;
};

}  // namespace tithe::sim
