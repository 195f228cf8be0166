// SPDX-License-Identifier: Apache-2.0
#pragma once
// Simulates a training step on a cluster: ranks run the engine's own programs, from the engine's own queue, on a
// virtual clock.
//
//   - same steps: programs come from compile(), and ready steps run in the order of queue.h. So a rank's steps are
//     those of the engine's trace, in the same order unless timing decides.
//   - lanes: a rank has one communication lane and its compute lanes; they share the cores of their machine.
//   - messages: messages between two ranks travel one after the other, in the order of posting. The transport's rule
//     decides when long ones are sent (transport/long_messages.h).
//   - complete: all ranks are simulated, or one rank of each class (advisor/sim/classes.h).
//   - linear: the time per step does not depend on the size of the world, except for flows that share links.
//   - same: the same input gives the same times on every machine.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "advisor/sim/cluster.h"
#include "advisor/sim/costs.h"
#include "engine/program/program.h"
#include "tithe/seam/plan.h"

namespace tithe::sim {

// A bucket that all ranks submit `ready` seconds after the start of their step.
struct Exchange {
  Seconds ready = 0;
  Plan plan;
  bool copies = false;  // codecs cannot use its gradients in place
};

// A training step, the same on all ranks.
struct Workload {
  Seconds compute = 0;  // forward and backward: a lower bound of the step
  std::vector<Exchange> buckets;
  int lanes = 1;    // compute lanes of a rank; 0: the default (Cluster::lanes)
  int servers = 0;  // the last ranks of the world that only sum for the others
};

// One executed step of a program.
struct Event {
  Rank rank = 0;
  int bucket = 0, part = 0;
  int step = 0;  // index in the part's program, Outcome::program
  int lane = 0;  // 0 is the communication lane
  Seconds begin = 0, end = 0;
};

struct StepTimeline;
class Outcome {
 public:
  Seconds step = 0;               // until the last rank can begin the next one
  Seconds exposed = 0;            // the part of it after compute
  std::size_t ranks = 0;          // simulated ranks
  std::size_t lanes = 0;          // compute lanes of rank 0
  std::size_t steps = 0;          // steps of their programs: the simulation's cost is proportional to them
  std::vector<double> bytes;      // bytes of sent frames, by simulated rank
  std::vector<Seconds> computed;  // lane time of computation steps, by simulated rank
  Seconds encoded = 0;            // of rank 0: time of encoding
  Seconds merged = 0;             // of rank 0: time of merging and storing payloads
  Seconds processor = 0;          // mean core time of a rank, including the kernel's work for its messages
  double max_link_busy = 0;       // busy time of the busiest link, at its rate
  std::string busiest;            // the name of that link
  std::vector<Event> events;      // if requested, in the order of their ends

  // The program that a simulated rank ran for a part, to interpret events.
  const engine::Program& program(Rank rank, int bucket, int part) const;
  const engine::Step& step_of(const Event& e) const {
    return program(e.rank, e.bucket, e.part).steps[static_cast<std::size_t>(e.step)];
  }

 private:
  friend class World;
  std::vector<std::vector<std::shared_ptr<const StepTimeline>>> timelines_;  // by bucket and part
};

// Which ranks are simulated.
enum class Extent : std::uint8_t {
  kAll,
  kFew,  // the ranks that represent all; all ranks if no two are alike
  // Like kFew, but all ranks of a small world whose events are requested or whose hosts share a machine.
  kNeeded,
};

// If all ranks are alike, this takes some twenty seconds for a model of 10^8 values.
inline constexpr int kMaxRanks = 1 << 17;
Status check_ranks(const Cluster& cluster);  // kInvalid: there are too many

class TimelineCache;  // step_timeline.h

// kInvalid: too many ranks, unknown costs, or a plan whose codec and strategy share no law. A step longer than `limit`
// is not simulated to its end, and its `step` is kNever. `library`: timelines of other worlds with the same cluster and
// costs.
Result<Outcome> run(const Cluster& cluster, const Costs& costs, const Workload& work, bool events,
                    Extent extent = Extent::kNeeded, Seconds limit = kNever,
                    TimelineCache* library = nullptr);

}  // namespace tithe::sim
