// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs of a step of the engine on a machine: the numbers that a profile holds (docs/guide/simulate.md).
//
//   curves     time over values: linear between measured points, through the origin below the first one, in proportion
//              beyond the last one
//   expected   payloads of codecs whose size depends on the data: the bound times what was measured (`typical`); else
//              what the codec itself expects of gradients (codec/typical.h)
//   complete   a codec that a profile does not know is refused where it is asked for, by name
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "advice/sim/flows.h"
#include "engine/program/program.h"
#include "tithe/seam/plan.h"
#include "tithe/status.h"
#include "transport/long_messages.h"

namespace tithe::sim {

struct Curve {
  std::vector<std::pair<double, Seconds>> points;  // values, seconds; both ascending
  Seconds at(double values) const;
  friend bool operator==(const Curve&, const Curve&) = default;
};

// The costs of one codec at one setting, feedback included; of its first phase, where it has several.
struct CodecCosts {
  Curve encode;                        // n values into a payload
  Curve store;                         // a payload into n values
  Curve merge;                         // a further payload into n values
  double typical = 0;                  // bytes of a payload over its bound; 0: as the codec expects
  std::vector<CodecCosts> later = {};  // by phase, of those after the first; none: each is like the first
  const CodecCosts& of_phase(std::size_t phase) const;
  double payload_bytes(const Spec& spec, std::size_t phase, std::size_t n) const;  // expected
  friend bool operator==(const CodecCosts&, const CodecCosts&) = default;
};

struct Costs {
  Seconds step = 1e-6;      // a step of computing that has nothing to do
  Seconds post = 2e-6;      // to hand a message to the transport
  Seconds complete = 2e-6;  // to take one that has come
  Seconds wake = 5e-6;      // of a lane that sleeps
  Seconds turn = 5e-6;      // of the communication lane: to wake, to ask the transport, to sleep again
  Seconds slice = 0;        // how long a thread keeps a core that others want; 0: they share it at any moment
  Seconds move = 0;         // how long one that wakes waits for a busy core before a free one takes it
  Seconds bucket = 5e-6;    // to begin a bucket
  Seconds check_byte = 0;   // checksum of a frame, per byte
  Seconds copy_value = 0;   // to and from where gradients lie, per value that cannot be used in place
  Seconds send_byte = 0;    // the kernel's work and the transport's, beside the lanes
  Seconds receive_byte = 0;
  LongMessages long_messages = {};  // when they leave: a trait of the transport
  double many_to_one = 1;  // of a link's rate, what arrives where several send to one at the same time
  std::map<std::string, CodecCosts, std::less<>>
      codecs;  // by spec string, or by a codec's name: its usual settings

  // kInvalid: the profile knows nothing of this codec.
  Result<const CodecCosts*> of(const Spec& spec) const;
  // kInvalid, naming all codecs of which the profile knows nothing.
  Status know(std::span<const Spec> specs) const;
  friend bool operator==(const Costs&, const Costs&) = default;
};

// The numbers of Costs by name: in a cluster's file, and in a profile.
struct CostField {
  const char *name, *in_profile;
  Seconds Costs::*number;
};
inline constexpr CostField kCostFields[] = {
    {"step", "step_s", &Costs::step},
    {"post", "post_s", &Costs::post},
    {"complete", "complete_s", &Costs::complete},
    {"wake", "wake_s", &Costs::wake},
    {"turn", "turn_s", &Costs::turn},
    {"slice", "slice_s", &Costs::slice},
    {"move", "move_s", &Costs::move},
    {"bucket", "bucket_s", &Costs::bucket},
    {"check_byte", "check_s_per_byte", &Costs::check_byte},
    {"copy_value", "copy_s_per_value", &Costs::copy_value},
    {"send_byte", "send_s_per_byte", &Costs::send_byte},
    {"receive_byte", "receive_s_per_byte", &Costs::receive_byte},
};

// The paces that planning uses where nothing was measured (src/plan/codec_cost.def), for all codecs that it lists.
Costs usual_costs();
// The same with what is assumed of steps, messages and frames (docs/guide/simulate.md): messages are those of ucx over
// TCP.
inline constexpr std::string_view kUsualTransport = "ucx";
inline constexpr double kUsualManyToOne =
    0.9;  // bench/results/truth.md: `server` beside `ring`, fp32 and bf16
Costs assumed_costs();

// The costs of one rank's program of one bucket, by step and by slot.
struct Priced {
  std::vector<Seconds> seconds;  // by step of computing; 0 for sends and receives
  std::vector<double> bytes;     // by slot: the whole frame
};
// `copies`: gradients do not lie where the codec can use them. `payloads`, by slot: of how many ranks the frame there
// holds payloads; empty: of one.
Result<Priced> price(const Costs& costs, const Plan& plan, const engine::Program& program, bool copies,
                     std::span<const int> payloads = {});

}  // namespace tithe::sim
