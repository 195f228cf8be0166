// SPDX-License-Identifier: Apache-2.0
#pragma once
// A PartRunner executes the steps of a part: it loads values, encodes them, merges received frames and stores the
// result. There is one runner for each kind of part in host memory. If a bucket is on a GPU, run_on_device() runs the
// steps of device parts instead, many together (step_groups.h). A runner has no state, so it serves all parts of its
// kind on all lanes. All runners, and a GPU, write the same bytes and the same residuals.
#include <memory>

#include "engine/device/device_parts.h"
#include "engine/program/laws.h"

namespace tithe::engine {

struct UnitState;

class PartRunner {
 public:
  virtual ~PartRunner() = default;
  // Provides the values as fp32, with clipping and momentum.
  virtual Status load(const StepContext& w) const = 0;
  // Encodes the chunk's values; in the last phase also updates the residual. Poisons the chunk if a value is not
  // finite.
  virtual Result<Encoded> encode(const StepContext& w, Bytes out) const = 0;
  // Decodes payloads into the chunk's values: a merge adds them to the values, a store replaces the values by the
  // result. Poisons the chunk if a value of the result is not finite.
  virtual Status decode(const StepContext& w, PayloadViews payloads) const = 0;
  // Checks the step's frames, and merges them into the chunk by its law. A frame that is flagged as not finite poisons
  // the chunk.
  virtual Status merge(const StepContext& w) const;
  // Likewise, makes the result of the frames: the values in the last phase, otherwise the context of later phases.
  virtual Status store(const StepContext& w) const;
  // Writes the stored values to the caller's tensors.
  virtual Status unload(const StepContext& w) const = 0;
};

// Values in host memory, any codec and law (host_part.cc).
class HostPart : public PartRunner {
 public:
  Status load(const StepContext& w) const override;
  Result<Encoded> encode(const StepContext& w, Bytes out) const override;
  Status decode(const StepContext& w, PayloadViews payloads) const override;
  Status unload(const StepContext& w) const override;
};

const PartRunner& uncompressed_part();  // values in host memory are the payload (uncompressed_part.cc)
// The runner of a part in host memory.
const PartRunner& runner_of(const Codec& codec);

// Runs a group of steps of device parts (device_part.cc).
Status run_on_device(DeviceParts& gpu, std::span<const StepContext> group);

// The parts of a bucket, with the reasons why a GPU cannot take some of them (device_part.cc).
std::unique_ptr<DeviceParts> device_parts(const UnitState& unit);

}  // namespace tithe::engine
