// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a bucket on a GPU. A device part is gathered, encoded, decoded, summed and written on the GPU, and
// only payloads are copied to and from the host. The other parts take the host path, with copies of their tensors in
// pinned memory.
//
//   equal     both paths write the same bytes and the same residuals, so each rank may choose for itself in each round
//   listed    text() lists the path of each part and the reason
//   fallback  if a GPU lacks memory or a compiler for a part, the host takes the part; a lost context ends the session
//
// Parts of one tensor, and of tensors that share parts, take the same path, because they share residuals. The values of
// several parts are one batch (lang/cuda/device_program.h): one launch for all parts of a codec. When a call returns,
// with any status, the GPU has no pending work of the call.
//
// Threads  begin() between rounds; the rest on lanes, each part's values by one step at a time (program/unit_state.h).
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "engine/device/gpus.h"
#include "feedback/error_feedback.h"
#include "tithe/session.h"

namespace tithe::engine {

// Values of a part in one tensor of the bucket: values [skip, skip + n) of the tensor, from value `at` of the part on.
struct PartShare {
  std::size_t tensor = 0, skip = 0, at = 0, n = 0;
  DType dtype = DType::kF32;
  std::size_t bytes() const { return n * bytes_of(dtype); }
  std::uint8_t* data(std::span<const Tensor> bucket) const {
    return static_cast<std::uint8_t*>(bucket[tensor].data) + skip * bytes_of(dtype);
  }
};
// True if the part's values are fp32 and adjacent in memory.
bool adjacent(std::span<const Tensor> bucket, std::span<const PartShare> shares);
// Calls body(share) for the shares of the part's values [first, first + n), until one fails.
template <typename Body>
Status each_share(std::span<const PartShare> shares, std::size_t first, std::size_t n, Body body) {
  auto s = std::ranges::partition_point(shares, [&](const PartShare& a) { return a.at + a.n <= first; });
  for (; s != shares.end() && s->at < first + n; ++s) {
    const std::size_t from = std::max(s->at, first), to = std::min(s->at + s->n, first + n);
    if (from < to) TITHE_TRY(body(PartShare{s->tensor, s->skip + (from - s->at), from, to - from, s->dtype}));
  }
  return {};
}

class DeviceParts {
 public:
  struct PlannedPart {  // from the plan
    Spec spec;
    std::string why;      // the reason why the host must take it; empty: none
    bool copied = false;  // codecs may be unable to use its tensors' own memory
    std::size_t n = 0, staged_at = 0;
    std::vector<std::size_t> chunks = {};  // their sizes
    std::size_t largest_chunk() const { return *std::ranges::max_element(chunks); }
    std::vector<PartShare> shares;
    // True if the part shares no tensor with earlier parts.
    bool begins() const { return shares.empty() || shares[0].skip == 0; }
  };
  // most_payloads: of one decoding.
  DeviceParts(std::vector<PlannedPart> parts, std::size_t staged_values, std::size_t most_payloads,
              std::shared_ptr<Gpus> gpus);

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
  // For device parts: a batch of values of several parts. All calls first gather the values in `loads`.
  struct PartRange {
    int part = 0;
    std::size_t first = 0, n = 0;
  };
  struct Encoding {
    PartRange of;
    Call call;
    feedback::ErrorFeedback::DeviceView kept;
    Bytes out;
    Result<Encoded> done = Encoded{};  // after encode()
  };
  struct Decoding {
    PartRange of;
    Call call;
    std::vector<ByteView> payloads;  // checked
    // A merge adds to the current values. A store replaces the values, divides them, writes them to the tensors, and
    // sets `largest` (DeviceProgram::Onto).
    bool is_merge = false;
    float divide = 1.0F;
    float largest = 0;
  };
  Status load(std::span<const PartRange> loads);
  Status encode(std::span<const PartRange> loads, std::span<Encoding> all);
  Status decode(std::span<const PartRange> loads, std::span<Decoding> all);
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
    catalogue::DeviceProgram& by() const { return *made->on.program; }
  };
  const PartState& at(int part) const { return parts_[static_cast<std::size_t>(part)]; }
  const PlannedPart& made(int part) const { return made_[static_cast<std::size_t>(part)]; }
  void choose(const feedback::ErrorFeedback& feedback);
  void leave_to_host(std::size_t part, const std::string& why);  // and all parts on the same path ("alike")
  Status take_memory(feedback::ErrorFeedback& feedback);
  Status make_mirror();
  // Reserves memory for batches of all device parts.
  Status reserve();
  Call kernel_call(int part, const Call& call) const;
  device::Address values(const PartRange& of) const;
  // Runs a batch: gathers `loads`, then start() queues the work, and finish() runs after the wait.
  template <typename Start, typename Finish>
  Status run(std::span<const PartRange> loads, Start start, Finish finish);
  Status convert(catalogue::DeviceLane& on, std::span<const PartRange> all, bool gathers);
  // Calls body(share) for each share of the values, until one fails, and waits for the copies.
  template <typename Body>
  Status copy_shares(int lane, int part, std::size_t first, std::size_t n, Body body) {
    return drained(lane, each_share(made(part).shares, first, n, body));
  }
  // Waits until the lane's stream is idle.
  Status drained(int lane, const Status& status);

  const std::vector<PlannedPart> made_;
  const std::size_t staged_values_, most_payloads_;
  const std::shared_ptr<Gpus> gpus_;
  Gpu* gpu_ = nullptr;
  // reserved_: the lanes have reserved their memory.
  bool on_ = false, reserved_ = false;
  std::vector<PartState> parts_;
  std::vector<Tensor> bucket_, mirror_;
  // The offset of each tensor in mirrored_. A member, so that a round allocates no memory for it.
  std::vector<std::size_t> mirrored_at_;
  device::Memory staged_;
  device::Pinned mirrored_;
  device::Event given_;  // the caller's work on the bucket has ended
};

}  // namespace tithe::engine
