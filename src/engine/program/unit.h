// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Unit is one bucket layout ready to run: its program, the memory for its frames, the error feedback of its
// tensors, and the bodies of the steps. It has no threads and no transport: the runner decides when and on which
// thread a step runs.
//
//   once      every step of a program runs once per round, after all steps that it waits for
//   apart     steps that do not wait for each other may run at the same time, each with its own lane number
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/shared/common/magnitude.h"
#include "engine/device/device_parts.h"
#include "engine/program/bucket.h"
#include "engine/program/frames.h"
#include "engine/program/laws.h"
#include "engine/program/part_values.h"
#include "engine/program/program.h"
#include "feedback/error_feedback.h"
#include "frame/pieces.h"
#include "frame/tagger.h"
#include "tithe/seam/frame.h"

namespace tithe::engine {

// The constants of a session.
struct Member {
  Rank me = 0;
  int world = 1;
  Hosts hosts = {};
  int servers = 0;
  float divide = 1.0F;
  std::uint64_t seed = 0;
  std::uint64_t run = 0;
  bool force_reference = false;
  int workers = 1;  // lane numbers are 0..workers-1: compute lanes, then the communication lane
  Tagging tagging = {};
  std::shared_ptr<Tags> tags = {};                                        // null: frames are not tagged
  std::shared_ptr<KnownMakers> makers = std::make_shared<KnownMakers>();  // of all its layouts
  std::shared_ptr<Gpus> gpus = std::make_shared<Gpus>(DeviceChoice{}, 1);
  bool strangers = false;  // bytes without a valid tag may come from outside the job
  Place place() const { return {me, world, &hosts, servers}; }
};

// A chunk in the current round.
struct ChunkState {
  const float* source = nullptr;  // the gradient that encode reads
  bool poisoned = false;          // a frame of it was flagged as not finite
  bool present = false;           // leader law: a payload has arrived
  std::size_t own_bytes = 0;      // of the own payload, after it was made
  // Of the outgoing frame, if merging has computed it.
  std::optional<std::uint64_t> checksum = {};
  ByteView context;
};

// The data for a step, by reference.
struct StepContext {
  const Part& part;
  const PartLayout& layout;
  const LawRow& law;
  ChunkState& chunk;
  std::span<float> values;
  std::size_t n;
  bool last_phase;
  Contribution contribution;
  bool plain;  // the codec sends the memory of its values (Traits::uncompressed)
};

class Unit {
 public:
  // ratios: all arguments that use_ratio() may receive. incoming: see feedback::ErrorFeedback.
  Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::span<const double> ratios,
       std::span<const feedback::StateKinds> incoming = {});
  // A text about the memory that a unit needs, for errors about lack of memory.
  static std::string needs(const Member& member, std::span<const TensorLayout> tensors, const Plan& plan,
                           std::span<const double> ratios);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }
  std::uint64_t plan_hash() const { return plan_hash_; }
  std::span<const TensorLayout> tensors() const { return tensors_; }
  std::size_t values() const { return values_; }
  // Before the first round: the index of part 0 among the parts of all units, which determines channels and frame
  // headers.
  void use_channels(std::uint32_t first_part) { first_part_ = first_part; }
  Channel channel(int part) const { return first_part_ + static_cast<std::uint32_t>(part) + 1; }

  // Sets the ratio of every scheduled part for the next rounds. Must be identical on all ranks.
  void use_ratio(double ratio);
  // Touches all memory that a round uses, so that no round pays for page faults. `bucket`: tensors of the layout;
  // only their addresses matter.
  void touch(std::span<const Tensor> bucket);
  // The tensors of the last round with their addresses, in the caller's order.
  std::vector<Tensor> last_bucket() const { return part_values_.bucket(); }
  // Prepares the next round's bucket, in the caller's order. If it fails, nothing has begun.
  Status place(std::span<const Tensor> bucket, const Origin& origin);
  // Begins a round with these tensors, in the caller's order.
  void begin(std::span<const Tensor> bucket, std::uint32_t round);
  // Runs one step other than send and recv. A failure names the source of the frame.
  Status run(const Step& step, int lane);
  // The bytes of a send or recv step.
  ByteView outgoing(const Step& step) const { return frames_.whole(step.slot); }
  Bytes incoming(const Step& step) { return frames_.memory(step.slot); }
  void received(const Step& step, std::size_t bytes) { frames_.received(step.slot, bytes); }
  // All steps have run: fills the bucket with NaN if some rank was not finite.
  void end();
  // True if the next round's bucket is on a GPU.
  bool is_on_device() const { return gpu_ != nullptr && gpu_->on(); }
  // Copies the tensor at this index, as before the round, to host memory in `room`, and sets `tensor` to it.
  Status read(std::size_t index, Tensor& tensor, std::vector<std::uint8_t>& room);
  // Not ok if filling the bucket with NaN failed on a GPU.
  const Status& trouble() const { return trouble_; }
  std::string device_text() const { return gpu_ == nullptr ? std::string() : gpu_->text(); }
  bool finite() const { return finite_; }
  // True if a value of the result exceeds the limit for residuals (feedback::kMaxResidual).
  bool excessive() const { return excessive_; }

  // keep: commits the error feedback; otherwise it stays unchanged and the bucket is filled with NaN. Returns the sum
  // that decay removed. `for_good`: undo will not be called.
  double commit(bool keep, bool for_good = true);
  feedback::ErrorFeedback& feedback() { return feedback_; }

 private:
  friend const LawRow& row_of(Law law);

  StepContext context_of(const Step& step);
  // A part's codec with its current settings.
  struct Coding {
    const Impl* impl = nullptr;
    CodecId id{};
    Settings settings;  // in this round
  };
  const Coding& coding(const Step& step) const {
    return (step.stage == Stage::kInside ? inside_ : codings_)[static_cast<std::size_t>(step.part)];
  }
  const Impl& impl(const Step& step) const { return *coding(step).impl; }
  const Settings& settings(const Step& step) const { return coding(step).settings; }
  std::span<const int> list(Range r) const { return std::span(program_.indices).subspan(r.first, r.count); }
  bool leads(const StepContext& w) const {
    return !w.law.one_leads || round_ % static_cast<std::uint32_t>(w.contribution.of) ==
                                   static_cast<std::uint32_t>(w.contribution.at);
  }
  // Only the last phase writes the residual.
  float* residual_out(const Step& step, const StepContext& w) {
    return w.last_phase ? feedback_.residual_out(step.part, step.chunk) : nullptr;
  }
  std::span<const ByteView> only(ByteView payload, int lane) {
    std::vector<ByteView>& views = views_[static_cast<std::size_t>(lane)];
    views[0] = payload;
    return std::span<const ByteView>(views).first(1);
  }
  Bytes scratch(int lane) const;
  Call call(const Step& step, const StepContext& w, int lane);
  FrameHeader header(const Step& step, const StepContext& w) const;

  // Steps (steps.cc).
  Status load(const Step& step, int lane);
  Status own(const Step& step, int lane);
  Status encode(const Step& step, int lane);
  Status check(const Step& step, int lane, const EachPiece* each = nullptr);
  Status check_frames(std::span<const int> frames, int lane);  // those without a kCheck step
  Status merge(const Step& step, int lane);
  Status store(const Step& step, int lane);

  // Parts of the step bodies.
  Result<Encoded> encode_into(const Step& step, const StepContext& w, int lane, Bytes out);
  Status decode(const Step& step, const StepContext& w, int lane, std::span<const ByteView> payloads,
                const Merge& merge);
  // Adds a frame to acc; `after` more frames follow. Poisons the chunk if a sum is not finite.
  Status combine(const Step& step, const StepContext& w, int lane, Bytes acc, int frame, std::size_t after,
                 float* rounding);
  Status sound(const Step& step, const StepContext& w, int lane, int frame);
  // True if the frame is unchecked and contains plain values of this chunk, so that its reader can check it while
  // reading.
  bool reads_at_once(const StepContext& w, int frame) const;
  // For a plain codec: a piece of this rank's payload of the chunk. It is in `room`, unless it already is in memory.
  Result<ByteView> own_piece(const Call& call, const Impl& by, const EncodeInput& input, Bytes room);
  // store() in one pass: checks the frame and writes the result piece by piece.
  Status store_at_once(const Step& step, const StepContext& w, int lane);
  Status write(const Step& step, const StepContext& w, int lane, std::span<const ByteView> payloads,
               bool& finite);
  // Checks values of the result; false if some are not finite.
  bool see_result(std::span<const float> values) { return see_largest(codec::largest_magnitude(values)); }
  bool see_largest(float largest);
  // Writes the result to the caller's memory.
  Status unload(const Step& step, const StepContext& w, int lane);
  bool meets_nonfinite(std::span<const int> frames, const StepContext& w);
  Rank culprit(const Step& step, const StepContext& w, std::span<const ByteView> payloads) const;

  // Device parts (device_steps.cc).
  void begin_on_device();
  // A failure of this rank's GPU names this rank.
  Status ours(const Status& status) const {
    return status.ok() ? status : Status(status.code(), status.what(), member_.me);
  }
  bool on_device(const Step& step) const { return gpu_ != nullptr && gpu_->takes(step.part); }
  std::unique_ptr<DeviceParts> device_parts() const;
  Result<Encoded> encode_on_device(const Step& step, const StepContext& w, int lane, Bytes out);
  // Adds payloads to the values on the GPU, or stores their sum there. `largest`: of the result.
  Status decode_on_device(const Step& step, const StepContext& w, int lane,
                          std::span<const ByteView> payloads, bool onto, float divide,
                          float* largest = nullptr);
  void fill_with_nan();

  Result<FrameBody> encode_values(const Step& step, const StepContext& w, int lane);

  // The bodies that depend on the law (laws.cc).
  Result<FrameBody> encode_own(const Step& step, const StepContext& w, int lane);
  Result<FrameBody> encode_joined(const Step& step, const StepContext& w, int lane);
  Status merge_values(const Step& step, const StepContext& w, int lane);
  Status merge_arrays(const Step& step, const StepContext& w, int lane);
  Status merge_onto(const Step& step, const StepContext& w, int lane);
  Status merge_leader(const Step& step, const StepContext& w, int lane);
  Status merge_nothing(const Step& step, const StepContext& w, int lane);
  Status all_payloads(const Step& step, const StepContext& w, int lane, std::span<const ByteView>& payloads);
  Status one_array(const Step& step, const StepContext& w, int lane, std::span<const ByteView>& payloads);
  Status leaders_payload(const Step& step, const StepContext& w, int lane,
                         std::span<const ByteView>& payloads);

  const Member member_;
  const std::vector<TensorLayout> tensors_;
  const Plan plan_;
  const std::uint64_t plan_hash_;
  std::uint64_t round_hash_;  // plan_hash_, combined with the round's ratio if there is a schedule
  std::uint32_t first_part_ = 0;
  const Program program_;
  std::size_t values_ = 0;
  const float divide_;                // by which results are divided
  std::vector<std::uint32_t> draws_;  // by part: the key of its random draws, from its first tensor
  std::vector<Coding> codings_;       // by part: of the codec between hosts
  std::vector<Coding> inside_;        // by part: of the codec inside hosts, if there is one

  std::vector<Arena> scratch_;                // by lane
  std::vector<std::vector<ByteView>> views_;  // by lane
  Frames frames_;
  PartValues part_values_;
  feedback::ErrorFeedback feedback_;
  std::vector<ChunkState> chunks_;
  std::unique_ptr<DeviceParts> gpu_;  // set once a bucket was on a GPU
  Status trouble_;
  std::uint32_t round_ = 0;
  std::atomic<bool> finite_{true};
  std::atomic<bool> excessive_{false};
};

}  // namespace tithe::engine
