// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that run the engine's own programs, out of the engine's own queue, on a virtual clock: what a step of training
// would take on a cluster.
//
//   same steps   programs are compile()'s, and what is ready runs in the order of queue.h; so a rank's steps are
//                those of the engine's trace, and in its order where time does not decide
//   lanes        a rank has one communication lane and its compute lanes; they share the cores of their machine
//   messages     between two ranks they travel one after the other, in the order in which they were handed over; when
//                long ones leave is the transport's rule (transport/long_messages.h)
//   in full      every rank of the world is simulated; or, where ranks do the same at the same time, few of them, which
//                stand for all (advice/sim/classes.h)
//   linear       a step costs the same in a world of any size, but for the flows of links that are shared
//   same         the same input gives the same times on every machine
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "advice/sim/cluster.h"
#include "advice/sim/costs.h"
#include "engine/program/program.h"
#include "tithe/seam/plan.h"

namespace tithe::sim {

// A bucket that all ranks hand over, so long after their step began.
struct Exchange {
  Seconds ready = 0;
  Plan plan;
  bool copies = false;  // its gradients do not lie where codecs can use them
};

// A step of training, the same on all ranks.
struct Workload {
  Seconds compute = 0;  // forward and backward: the step takes at least so long
  std::vector<Exchange> buckets;
  int lanes = 1;    // compute lanes of a rank; 0: as many as it takes that is not told (Cluster::lanes)
  int servers = 0;  // so many ranks, the last ones, only sum for the others
};

// A step of a program as it ran.
struct Event {
  Rank rank = 0;
  int bucket = 0, part = 0;
  int step = 0;  // of the part's program: Outcome::program
  int lane = 0;  // 0 is the communication lane
  Seconds begin = 0, end = 0;
};

struct StepTimeline;
class Outcome {
 public:
  Seconds step = 0;               // until the last rank may begin the next one
  Seconds exposed = 0;            // of it, after compute
  std::size_t ranks = 0;          // that were simulated
  std::size_t lanes = 0;          // of computing, of rank 0
  std::size_t steps = 0;          // of their programs: what the simulation takes is in proportion
  std::vector<double> bytes;      // sent, by rank that was simulated: frames
  std::vector<Seconds> computed;  // lane time of steps of computing, by rank that was simulated
  Seconds encoded = 0;            // of rank 0's: payloads made
  Seconds merged = 0;             // and payloads taken into values, and stored
  Seconds processor = 0;          // core time of a rank, with what the kernel does for its messages; the mean
  double carried_most = 0;        // seconds for which the busiest link was busy at its rate
  std::string busiest;            // that link
  std::vector<Event> events;      // if asked for, in the order of their ends

  // The program that a simulated rank ran for a part, for those who read events.
  const engine::Program& program(Rank rank, int bucket, int part) const;
  const engine::Step& step_of(const Event& e) const {
    return program(e.rank, e.bucket, e.part).steps[static_cast<std::size_t>(e.step)];
  }

 private:
  friend class World;
  std::vector<std::vector<std::shared_ptr<const StepTimeline>>> timelines_;  // by bucket and part
};

// The ranks that are simulated.
enum class Extent : std::uint8_t {
  kAll,
  kFew,     // those that stand for all; all where no two are alike
  kNeeded,  // as kFew, but all of a small world whose events are asked for or whose hosts share a machine
};

inline constexpr int kMostRanks =
    1 << 17;  // where all are alike, some twenty seconds of a model of 10^8 values
Status check_ranks(const Cluster& cluster);  // kInvalid: there are more

class TimelineCache;  // step_timeline.h

// kInvalid: more ranks than that; costs that are not known; a plan whose codec and strategy share no law. `limit`: a
// step that lasts longer is not followed to its end, and its `step` is kNever. `library`: what other worlds of this
// cluster and these costs have left.
Result<Outcome> run(const Cluster& cluster, const Costs& costs, const Workload& work, bool events,
                    Extent extent = Extent::kNeeded, Seconds limit = kNever,
                    TimelineCache* library = nullptr);

}  // namespace tithe::sim
