// SPDX-License-Identifier: Apache-2.0
#pragma once
// Part of world.h: a lower bound of a step's time, so that the simulator can stop as soon as a step cannot end in time.
//
// Each link needs at least the time of its remaining bytes at full rate. Each rank's lanes need the time of the
// remaining computation, and its communication lane the time of its remaining messages. The step cannot end before the
// largest of these. The work of a bucket cannot begin before the bucket is ready.
#include <map>
#include <vector>

#include "advisor/sim/classes.h"
#include "advisor/sim/step_timeline.h"

namespace tithe::sim {

// The links of host 0, if few ranks represent all.
inline constexpr int kUpOfFew = 0, kDownOfFew = 1, kInsideOfFew = 2;
// Stores the links of a message from a simulated rank, as the world numbers them, and returns its latency.
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

  // Adds a part. Parts must come in the order in which their buckets become ready.
  void add(const StepTimeline& timeline, Seconds ready);
  // The earliest end of the step, before it has begun.
  Seconds at_start() const;
  // The earliest end given the remaining work at `now`: for a link with `carried` bytes done; for a rank with the given
  // seconds of computation and message handling done.
  Seconds of_link(int link, double carried, Seconds now) const;
  Seconds of_rank(Rank rank, Seconds computed, Seconds handled, Seconds now) const;

 private:
  struct Load {
    std::vector<double> bytes;       // by link
    std::vector<Seconds> computing;  // by simulated rank
    std::vector<Seconds> handling;   // by simulated rank: messages
  };
  struct Waiting {
    const Load* load;
    Seconds ready;
  };
  const Load& of(const StepTimeline& timeline);
  // Light steps of a rank run on its communication lane, hence 1 +.
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
