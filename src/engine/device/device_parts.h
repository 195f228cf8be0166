// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bucket's parts where it lies on a GPU. A device part is gathered, encoded, decoded, added up and written there, and
// payloads alone go to the host and come from it. The other parts take the host path, on copies of their tensors in
// pinned memory.
//
//   equal     both paths write the same bytes and leave the same residuals: each rank may choose for itself, and anew
//   alike     parts of one tensor, and of tensors that share parts, take the same path, as their residuals do
//   told      text() says which part takes which path, and why
//   given up  what a part needs and does not get there (memory, a compiler) leaves it to the host; a context that is
//             lost ends the session
//   drained   when a call returns, whatever it returns, the GPU does nothing of it any more
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
  struct Share {  // n values of a tensor, and where they are in the part
    std::size_t tensor = 0, skip = 0, at = 0, n = 0;
  };
  struct PlannedPart {  // as the plan has it
    Spec spec;
    std::string why;      // the host takes it, whatever the GPU; empty: it need not
    bool begins = true;   // with a tensor's first value, so it shares none with the parts before
    bool copied = false;  // its tensors may lie where codecs cannot use them
    std::size_t n = 0, staged_at = 0, largest_chunk = 0;
    std::vector<Share> shares;
  };
  DeviceParts(std::vector<PlannedPart> parts, std::size_t staged_values, std::shared_ptr<Gpus> gpus);

  // The round's bucket lies there. kInvalid: one of its tensors does not. Nothing has begun then.
  Status begin(std::span<const Tensor> bucket, const Origin& origin, feedback::ErrorFeedback& feedback);
  void leave() { on_ = false; }  // it lies in the host's memory
  bool on() const { return on_; }
  bool takes(int part) const { return on_ && at(part).why.empty(); }
  // The tensors as the host path has them, in the order of the bucket; no data where it has none.
  const std::vector<Tensor>& mirror() const { return mirror_; }

  // ---- A round. Values [first, first + n) of a part
  // For the host path: from the GPU to the mirror, and back.
  Status bring(int lane, int part, std::size_t first, std::size_t n);
  Status take_back(int lane, int part, std::size_t first, std::size_t n);
  // For a device part: what encode and decode work on is gathered, and written to the tensors.
  Status load(int lane, int part, std::size_t first, std::size_t n);
  Status unload(int lane, int part, std::size_t first, std::size_t n);
  Result<Encoded> encode(int lane, int part, const Call& call, std::size_t first, std::size_t n,
                         const feedback::ErrorFeedback::DeviceView& kept, Bytes out);
  // Payloads that have passed their check; `onto`: what is there is added to. largest: DeviceProgram::Onto.
  Status decode(int lane, int part, const Call& call, std::span<const ByteView> payloads, bool onto,
                float divide, std::size_t first, std::size_t n, float* largest);
  Status fill_with_nan();
  // A tensor's bytes, before anything is done to it.
  Status read(std::size_t tensor, std::vector<std::uint8_t>& to);

  std::string text() const;  // a line for each path, and each reason

 private:
  struct PartState {
    std::string why;  // empty: it is a device part
    const Gpu::Program* made = nullptr;
    device::Address values = 0;  // of this round
    bool in_place = true;
    lang::DeviceProgram& by() const { return *made->on.program; }
  };
  const PartState& at(int part) const { return parts_[static_cast<std::size_t>(part)]; }
  const PlannedPart& made(int part) const { return made_[static_cast<std::size_t>(part)]; }
  void choose(const feedback::ErrorFeedback& feedback);
  void leave_to_host(std::size_t part, const std::string& why);  // and all that are alike
  Status take_memory(feedback::ErrorFeedback& feedback);
  Status make_mirror();
  Call kernel_call(int part, const Call& call) const;
  device::Address address(const Share& share) const;
  template <typename Body>
  Status each_share(int lane, int part, std::size_t first, std::size_t n, Body body);
  // Nothing is at work on the lane's stream any more.
  Status drained(int lane, const Status& status);

  const std::vector<PlannedPart> made_;
  const std::size_t staged_values_;
  const std::shared_ptr<Gpus> gpus_;
  Gpu* gpu_ = nullptr;
  bool on_ = false, reserved_ = false;  // what lanes need
  std::vector<PartState> parts_;
  std::vector<Tensor> bucket_, mirror_;
  device::Memory staged_;
  device::Pinned mirrored_;
  device::Event given_;  // the caller's work on the bucket
};

}  // namespace tithe::engine
