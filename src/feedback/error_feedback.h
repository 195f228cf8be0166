// SPDX-License-Identifier: Apache-2.0
#pragma once
// ErrorFeedback stores one bucket's state between rounds: residuals, velocities and codec memories. All state exists
// twice: the committed copy, and the copy that the open round writes.
//
// Each round, a part of the bucket goes through these calls in order:
//
//   load             clips the gradient and adds momentum; returns the gradient that encode reads
//   view             the gradient and residual of one chunk, as encode reads them
//   update_residual  after encode: applies decay and momentum masking, and counts the sum that decay removed
//   commit           makes the open round's copy the committed copy
//   spend            frees residuals that were sent: at commit, or when the round can no longer be undone
//
//   undone   before commit() nothing changes: without it the next round reads the same state
//   apart    threads may load different parts, and view and update different chunks, at the same time
//   moved    a tensor that shares no part has its own memory, which another ErrorFeedback can take over unchanged
//   needed   only parts that may leave a residual have memory for it; the caller frees spent memory (take_spent),
//            because freeing can take as long as a step
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "feedback/state_buffer.h"
#include "tithe/seam/spec.h"

namespace tithe::feedback {

// A part: its values, its codec, and the offsets of its chunks.
struct FeedbackPart {
  ValueRange values;
  Spec spec;
  std::vector<std::size_t> starts;  // chunk c is [starts[c], starts[c + 1]) of the part's values
  std::optional<Spec> inside = {};  // the codec between ranks of one host, if there is one
  std::optional<int> only = {};     // the one chunk that this rank encodes; none: it encodes all
  // True if the codecs leave no residual.
  bool lossless() const { return spec.codec->traits.lossless && (!inside || inside->codec->traits.lossless); }
};

class ErrorFeedback {
 public:
  // Tensors and parts are in order and cover the bucket. `incoming`, by tensor: the kinds that take_over() will move
  // in; memory for all others is allocated at once. Empty: none will be moved in.
  ErrorFeedback(std::vector<ValueRange> tensors, std::vector<FeedbackPart> parts,
                std::span<const StateKinds> incoming = {});

  // The bytes of memory for these parts, if no state is moved in.
  static std::size_t bytes(std::span<const FeedbackPart> parts);

  // ---- A round. Parts and chunks by index.
  // Works in place on `grad`, the part's values from `first` on. If the policy clips, `grad` must be the whole part,
  // because each tensor is clipped by its own norm. Returns the gradient that encode reads, with as many values.
  const float* load(int part, std::size_t first, std::span<float> grad);
  // updates: this encode writes the residual; otherwise it only reads it. `grad`: of the chunk.
  EncodeInput view(int part, int chunk, const float* grad, bool updates);
  // The chunk's residual after the round; nullptr if there is none.
  float* residual_out(int part, int chunk);
  // `payload` is the output of `impl` for a view with updates = true.
  void update_residual(int part, int chunk, const Impl& impl, ByteView payload);
  ByteView memory(int part, int chunk) const { return at(memory_[now_], part, chunk); }
  Bytes next_memory(int part, int chunk);
  // Returns the sum that decay removed in the round. for_good: calls spend() at once, so undo() is impossible.
  double commit(bool for_good = true);
  void spend();  // frees adopted residuals that the committed round sent
  void undo();   // makes the state of the last commit, unless spent, the current state again
  // Between rounds: lets the system reclaim the pages that the next round writes.
  void lend_next();

  // ---- Residuals on a GPU. All other calls copy a residual to the host first.
  // Copies the part's residuals, if any, to the device. If the copy fails, they stay on the host.
  Status to_device(int part, const std::shared_ptr<device::Ferry>& by);
  Status to_host(int part);
  Status to_host();    // of all parts
  struct DeviceView {  // as view(); 0: no residual
    device::Address residual = 0, left = 0;
  };
  DeviceView device_view(int part, int chunk, bool updates);
  bool has_residual(int part) const { return parts_[static_cast<std::size_t>(part)].has_residual; }
  bool reads_alone(int part) const { return parts_[static_cast<std::size_t>(part)].adopted; }
  // Not ok: a copy from a GPU failed, so the values on the host are not valid.
  const Status& lost() const { return lost_; }

  // ---- The state of one tensor, as of the last commit. Empty if nothing is stored.
  std::span<float> residual(ValueRange tensor);
  // If the residual is on a GPU, a copy that is valid until the next round.
  std::span<const float> read_residual(ValueRange tensor);
  std::span<float> velocity(ValueRange tensor) { return cut(&StateBuffer::velocity, tensor); }
  std::span<std::uint8_t> memory(ValueRange tensor);
  // The kind of this tensor's memory: a hash of the codecs, their settings and the chunk bounds. 0: no memory.
  std::uint64_t memory_kind(ValueRange tensor) const;
  // Sets the tensor's residual. Parts without a residual send it too.
  void adopt(ValueRange tensor, std::span<const float> residual);
  // Call it after a change of the residual. In chunks that this rank does not encode, copies the committed residual
  // over the other copy, so that commits do not change it.
  void copy_committed(ValueRange tensor);

  // ---- Moves between two ErrorFeedbacks without an open round.
  // The kinds of state that take_over() of this tensor would move.
  StateKinds transferable(ValueRange tensor);
  // Moves the memory of a tensor, at `other_range` in `other`, with its contents. `counts`: the contents are the
  // tensor's state; otherwise they are undefined. Returns false and does nothing if the tensor shares its memory with
  // other tensors on either side.
  bool take_over(ValueRange tensor, ErrorFeedback& other, ValueRange other_range, bool counts);
  // Allocates memory for the expected states that take_over() did not move in.
  void complete();

  // The memory of spent residuals.
  std::vector<LargeFloats> take_spent() { return std::exchange(spent_, {}); }

 private:
  struct PartState {
    bool keeps_velocity = false;
    bool has_residual = false;             // encode reads residuals and writes them
    bool adopted = false;                  // encode only reads residuals, until the adopted ones are sent
    std::size_t buffer = 0;                // index of its StateBuffer
    std::vector<std::size_t> memory = {};  // offset of chunk c in memory_, in bytes; chunks + 1 entries
    std::vector<double> decayed = {};      // by chunk, in the open round; empty without decay
  };
  void fetch(StateBuffer& buffer);
  StateBuffer* find(ValueRange tensor);   // nullptr for a tensor without values
  StateBuffer* alone(ValueRange tensor);  // nullptr if several tensors share it
  std::span<float> cut(DoubleBuffer StateBuffer::*member, ValueRange tensor);
  // The address of value `first` of the bucket, which must belong to the part.
  float* at(DoubleBuffer StateBuffer::*member, int which, int part, std::size_t first);
  const FeedbackPart& feedback_part(int part) const {
    return feedback_parts_[static_cast<std::size_t>(part)];
  }
  PartState& state(int part) { return parts_[static_cast<std::size_t>(part)]; }
  ValueRange chunk_of(int part, int chunk) const {
    const FeedbackPart& p = feedback_part(part);
    const auto c = static_cast<std::size_t>(chunk);
    return {p.values.first + p.starts[c], p.starts[c + 1] - p.starts[c]};
  }
  ByteView at(const std::vector<std::uint8_t>& memory, int part, int chunk) const;
  // Makes the parts send this buffer's residual of the tensor, with any policy.
  void send_residual_of(StateBuffer& buffer, ValueRange tensor);
  // True if the part has a memory and belongs to this tensor.
  bool remembers(std::size_t part, ValueRange tensor) const;

  const std::vector<ValueRange> tensors_;
  const std::vector<FeedbackPart> feedback_parts_;
  std::vector<PartState> parts_;
  std::vector<StateBuffer> buffers_;  // in order
  std::vector<LargeFloats> spent_;
  std::vector<std::uint8_t> memory_[2];
  int now_ = 0;  // index of the committed copy
  Status lost_;
};

}  // namespace tithe::feedback
