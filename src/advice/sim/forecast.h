// SPDX-License-Identifier: Apache-2.0
#pragma once
// Part of world.h: a lower bound of a step's time, so that the simulator stops at once if a step cannot end in time.
//
//   at least   each link needs the time of its remaining bytes at full rate, each rank's lanes that of its remaining
//              computing, and its communication lane that of its remaining messages: the step does not end before
//              the largest of these
//   ready      the work of a bucket cannot begin before the bucket is ready
#include <map>
#include <vector>

#include "advice/sim/classes.h"
#include "advice/sim/step_timeline.h"

namespace tithe::sim {

// Links of host 0, where few ranks stand for all.
inline constexpr int kUpOfFew = 0, kDownOfFew = 1, kInsideOfFew = 2;
// The links of a message from a rank that is simulated, as the world counts them, and its latency.
Seconds route_of(const Cluster& cluster, const Classes& classes, Rank from, Rank to, std::vector<int>& links);

class Forecast {
 public:
  Forecast(const Cluster& cluster, const Costs& costs, const Classes& classes,
           const std::vector<double>& rates, int lanes)
      : cluster_(cluster),
        costs_(costs),
        classes_(classes),
        rates_(rates),
        lanes_(lanes),
        all_{std::vector<double>(rates.size()),
             std::vector<Seconds>(static_cast<std::size_t>(classes.simulated())),
             std::vector<Seconds>(static_cast<std::size_t>(classes.simulated()))} {}

  // Parts in the order in which their buckets are ready.
  void add(const StepTimeline& timeline, Seconds ready);
  // When the step ends at the earliest, before it has begun.
  Seconds at_start() const;
  // The earliest end by what is left at `now`: for a link that has carried so many bytes; for a rank that has begun so
  // many seconds of its computing and of handling messages.
  Seconds of_link(int link, double carried, Seconds now) const;
  Seconds of_rank(Rank rank, Seconds computed, Seconds handled, Seconds now) const;

 private:
  struct Load {
    std::vector<double> bytes;       // by link
    std::vector<Seconds> computing;  // by simulated rank
    std::vector<Seconds> handling;   // likewise, of messages
  };
  struct Waiting {
    const Load* load;
    Seconds ready;
  };
  const Load& of(const StepTimeline& timeline);
  // The light steps of a rank run on its communication lane.
  double lanes(std::size_t rank) const { return 1 + cluster_.lanes(static_cast<Rank>(rank), lanes_); }

  const Cluster& cluster_;
  const Costs& costs_;
  const Classes& classes_;
  const std::vector<double>& rates_;
  const int lanes_;
  Load all_;
  std::vector<Waiting> parts_;
  std::map<const StepTimeline*, Load> known_;
};

}  // namespace tithe::sim
