// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs of the engine's steps on a machine: the numbers of a profile (docs/guide/simulate.md).
//
//   - curves: time as a function of the number of values: linear between measured points, and proportional to the
//     number of values below the first point and beyond the last one.
//   - expected: if a codec's payload size depends on the data, its bound times the measured share (`typical`); without
//     a measurement, the size that the codec itself expects for gradients (codec/typical.h).
//   - complete: a codec without costs is refused by name.
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "advisor/sim/flows.h"
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

// The costs of one codec at one setting, including error feedback; of its first phase, if it has several.
struct CodecCosts {
  Curve encode;        // n values into a payload
  Curve store;         // a payload into n values
  Curve merge;         // a further payload into n values
  double typical = 0;  // payload bytes divided by the bound; 0: the codec's own expectation
  // The phases after the first one; empty: each costs as much as the first.
  std::vector<CodecCosts> later = {};
  const CodecCosts& of_phase(std::size_t phase) const;
  double payload_bytes(const Spec& spec, std::size_t phase, std::size_t n) const;  // expected
  friend bool operator==(const CodecCosts&, const CodecCosts&) = default;
};

// The name of the costs of weight differences (codec/shared/delta): encode and store, of bf16 values.
inline constexpr std::string_view kDeltaCosts = "delta";

struct Costs {
  Seconds step = 1e-6;      // overhead of a computation step
  Seconds post = 2e-6;      // to give a message to the transport
  Seconds complete = 2e-6;  // to take a received message
  Seconds wake = 5e-6;      // to wake a sleeping lane
  Seconds turn = 5e-6;      // the communication lane: to wake, to poll the transport, to sleep again
  Seconds slice = 0;      // minimum time that a thread keeps a contended core; 0: threads share cores evenly
  Seconds move = 0;       // time that a woken thread waits for a busy core before a free one takes it
  Seconds bucket = 5e-6;  // to begin a bucket
  Seconds checksum_byte = 0;  // checksum of a frame, per byte
  Seconds copy_value = 0;     // to copy a value to or from the gradients, if codecs cannot use them in place
  Seconds send_byte = 0;      // work of kernel and transport, outside the lanes
  Seconds receive_byte = 0;
  LongMessages long_messages = {};  // when they are sent: a property of the transport
  // The share of a link's rate that arrives while several ranks send to one.
  double many_to_one = 1;
  // By spec, or by a codec's name for its default settings. Lossless weight differences have kDeltaCosts.
  std::map<std::string, CodecCosts, std::less<>> codecs;

  // kInvalid: there are no costs for this codec.
  Result<const CodecCosts*> of(const Spec& spec) const;
  // kInvalid, with the names of all codecs without costs.
  Status know(std::span<const Spec> specs) const;
  friend bool operator==(const Costs&, const Costs&) = default;
};

// The numbers of Costs by their names in a cluster's file and in a profile.
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
    {"check_byte", "check_s_per_byte", &Costs::checksum_byte},
    {"copy_value", "copy_s_per_value", &Costs::copy_value},
    {"send_byte", "send_s_per_byte", &Costs::send_byte},
    {"receive_byte", "receive_s_per_byte", &Costs::receive_byte},
};

// The costs that planning uses without a measurement (src/plan/codec_cost.def), for all codecs in that list.
Costs default_costs();
// Likewise, with default costs of steps, messages and frames (docs/guide/simulate.md); messages are those of UCX over
// TCP.
inline constexpr std::string_view kDefaultTransport = "ucx";
// From lab/results/truth.md: `server` compared with `ring`, fp32 and bf16.
inline constexpr double kDefaultManyToOne = 0.9;
Costs assumed_costs();

// The costs of one rank's program for one bucket, by step and by slot.
struct Priced {
  std::vector<Seconds> seconds;  // by computation step; 0 for sends and receives
  std::vector<double> bytes;     // by slot: the size of the frame
};
// `copies`: codecs cannot use the gradients in place. `payloads`: by slot, the number of ranks whose payloads the frame
// holds; empty: one.
Result<Priced> price(const Costs& costs, const Plan& plan, const engine::Program& program, bool copies,
                     std::span<const int> payloads = {});

}  // namespace tithe::sim
