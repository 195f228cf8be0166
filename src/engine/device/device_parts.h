// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a bucket on a GPU. A device part is gathered, encoded, decoded, summed and written on the GPU, and
// only payloads are copied to and from the host. The other parts take the host path, with copies of their tensors in
// pinned memory.
//
//   equal     both paths write the same bytes and the same residuals, so each rank may choose for itself in each round
//   alike     parts of one tensor, and of tensors that share parts, take the same path, as they share residuals
//   told      text() lists the path of each part and the reason
//   fallback  if a GPU lacks memory or a compiler for a part, the host takes the part; a lost context ends the session
//   drained   when a call returns, with any status, the GPU has no pending work of the call
//
// Threads  begin() between rounds; the rest on lanes, each part's values by one step at a time (program/steps.cc).
#include <span>
#include <string>
#include <vector>

#include "engine/device/gpus.h"
#include "feedback/error_feedback.h"
#include "tithe/session.h"

namespace tithe::engine {

class DeviceParts {
 public:
  struct Share {  // n values of a tensor, and their offset in the part
    std::size_t tensor = 0, skip = 0, at = 0, n = 0;
  };
  struct PlannedPart {  // from the plan
    Spec spec;
    std::string why;      // the reason why the host must take it; empty: none
    bool begins = true;   // with a tensor's first value, so it shares no tensor with earlier parts
    bool copied = false;  // codecs may be unable to use its tensors' own memory
    std::size_t n = 0, staged_at = 0, largest_chunk = 0;
    std::vector<Share> shares;
  };
  DeviceParts(std::vector<PlannedPart> parts, std::size_t staged_values, std::shared_ptr<Gpus> gpus);

  // Begins a round with a bucket on a GPU. kInvalid: a tensor is not on that GPU; nothing has begun then.
  Status begin(std::span<const Tensor> bucket, const Origin& origin, feedback::ErrorFeedback& feedback);
  void leave() { on_ = false; }  // the bucket is in host memory
  bool on() const { return on_; }
  bool takes(int part) const { return on_ && at(part).why.empty(); }
  // The tensors for the host path, in the order of the bucket; no data for tensors that it does not use.
  const std::vector<Tensor>& mirror() const { return mirror_; }

  // ---- A round. Values [first, first + n) of a part
  // For the host path: copies from the GPU to the mirror, and back.
  Status bring(int lane, int part, std::size_t first, std::size_t n);
  Status take_back(int lane, int part, std::size_t first, std::size_t n);
  // For a device part: gathers the values for encode and decode, and writes them to the tensors.
  Status load(int lane, int part, std::size_t first, std::size_t n);
  Status unload(int lane, int part, std::size_t first, std::size_t n);
  Result<Encoded> encode(int lane, int part, const Call& call, std::size_t first, std::size_t n,
                         const feedback::ErrorFeedback::DeviceView& kept, Bytes out);
  // payloads: checked. `onto`: adds to the current values. largest: DeviceProgram::Onto.
  Status decode(int lane, int part, const Call& call, std::span<const ByteView> payloads, bool onto,
                float divide, std::size_t first, std::size_t n, float* largest);
  Status fill_with_nan();
  // Reads a tensor's bytes from before the round.
  Status read(std::size_t tensor, std::vector<std::uint8_t>& to);

  std::string text() const;  // a line for each path, and each reason

 private:
  struct PartState {
    std::string why;  // empty: a device part
    const Gpu::Program* made = nullptr;
    device::Address values = 0;  // in this round
    bool in_place = true;
    lang::DeviceProgram& by() const { return *made->on.program; }
  };
  const PartState& at(int part) const { return parts_[static_cast<std::size_t>(part)]; }
  const PlannedPart& made(int part) const { return made_[static_cast<std::size_t>(part)]; }
  void choose(const feedback::ErrorFeedback& feedback);
  void leave_to_host(std::size_t part, const std::string& why);  // and all parts on the same path ("alike")
  Status take_memory(feedback::ErrorFeedback& feedback);
  Status make_mirror();
  Call kernel_call(int part, const Call& call) const;
  device::Address address(const Share& share) const;
  template <typename Body>
  Status each_share(int lane, int part, std::size_t first, std::size_t n, Body body);
  // Waits until the lane's stream is idle.
  Status drained(int lane, const Status& status);

  const std::vector<PlannedPart> made_;
  const std::size_t staged_values_;
  const std::shared_ptr<Gpus> gpus_;
  Gpu* gpu_ = nullptr;
  // reserved_: the lanes have reserved their memory.
  bool on_ = false, reserved_ = false;
  std::vector<PartState> parts_;
  std::vector<Tensor> bucket_, mirror_;
  device::Memory staged_;
  device::Pinned mirrored_;
  device::Event given_;  // the caller's work on the bucket has ended
};

}  // namespace tithe::engine
