// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Unit is one bucket layout ready to run: its program, the memory for its frames, the error feedback of its
// tensors, and a runner for each of its parts. It has no threads and no transport: the session's runner decides when
// and on which thread a step runs. The runner runs every step once per round, after all steps that it waits for. Steps
// that do not wait for each other may run at the same time, each with its own lane number.
#include <memory>
#include <string>
#include <vector>

#include "engine/program/step_groups.h"
#include "engine/program/unit_state.h"

namespace tithe::engine {

class Unit {
 public:
  // ratios: all arguments that use_ratio() may receive. incoming: see feedback::ErrorFeedback.
  Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::span<const double> ratios,
       std::span<const feedback::StateKinds> incoming = {})
      : state_(member, std::move(tensors), std::move(plan), ratios, incoming) {}
  // A text about the memory that a unit needs, for errors about lack of memory.
  static std::string needs(const Member& member, std::span<const TensorLayout> tensors, const Plan& plan,
                           std::span<const double> ratios);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const Program& program() const { return state_.program; }
  const Plan& plan() const { return state_.plan; }
  std::uint64_t plan_hash() const { return state_.plan_hash; }
  std::span<const TensorLayout> tensors() const { return state_.tensors; }
  std::size_t values() const { return tensors().empty() ? 0 : tensors().back().first + tensors().back().n; }
  // Before the first round: the index of part 0 among the parts of all units, which determines channels and frame
  // headers.
  void use_channels(std::uint32_t first_part) { state_.first_part = first_part; }
  Channel channel(int part) const { return state_.first_part + static_cast<std::uint32_t>(part) + 1; }

  // Sets the ratio of every scheduled part for the next rounds. Must be identical on all ranks.
  void use_ratio(double ratio);
  // Touches all memory that a round uses, so that no round pays for page faults. `bucket`: tensors of the layout;
  // only their addresses matter.
  void touch(std::span<const Tensor> bucket);
  // The tensors of the last round with their addresses, in the caller's order.
  std::vector<Tensor> last_bucket() const { return state_.part_values.bucket(); }
  // Prepares the next round's bucket, in the caller's order, and chooses the runner of each part. If it fails, nothing
  // has begun.
  Status place(std::span<const Tensor> bucket, const Origin& origin);
  // Begins a round with these tensors, in the caller's order.
  void begin(std::span<const Tensor> bucket, std::uint32_t round);
  // The steps that run together with a step; only the step itself, if it runs alone.
  std::span<const int> together(const int& step) const;
  const StepGroups& groups() const { return groups_; }  // of this round
  // Runs a step other than send and recv, and all steps that run together with it. A failure names the source of the
  // frame.
  Status run(int step, int lane);
  // The bytes of a send or recv step.
  ByteView outgoing(const Step& step) const { return state_.frames.whole(step.slot); }
  Bytes incoming(const Step& step) { return state_.frames.memory(step.slot); }
  void received(const Step& step, std::size_t bytes) { state_.frames.received(step.slot, bytes); }
  // All steps have run: fills the bucket with NaN if some rank was not finite.
  void end() {
    if (!state_.finite) fill_with_nan();
  }
  // True if the next round's bucket is on a GPU.
  bool is_on_device() const { return gpu_ != nullptr && gpu_->on(); }
  // Copies the tensor at this index, as before the round, to host memory in `room`, and sets `tensor` to it.
  Status read(std::size_t index, Tensor& tensor, std::vector<std::uint8_t>& room);
  // Not ok if filling the bucket with NaN failed on a GPU.
  const Status& trouble() const { return trouble_; }
  std::string device_text() const { return gpu_ == nullptr ? std::string() : gpu_->text(); }
  bool finite() const { return state_.finite; }
  // True if a value of the result exceeds the limit for residuals (feedback::kMaxResidual).
  bool excessive() const { return state_.excessive; }

  // keep: commits the error feedback; otherwise it stays unchanged and the bucket is filled with NaN. Returns the sum
  // that decay removed. `for_good`: undo will not be called.
  double commit(bool keep, bool for_good = true);
  feedback::ErrorFeedback& feedback() { return state_.feedback; }

 private:
  void fill_with_nan();

  UnitState state_;
  std::unique_ptr<DeviceParts> gpu_;  // set once a bucket was on a GPU
  std::vector<bool> on_device_;       // by part
  StepGroups groups_;
  Status trouble_;
};

}  // namespace tithe::engine
