// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Unit is one bucket layout ready to run: its program, the memory for its frames, what the carry keeps of its
// tensors, and the steps' bodies. It knows no threads and no transport: the runner decides who runs what, when.
//
//   once      every step of a program runs once per round, after all steps that it waits for
//   apart     steps that do not wait for each other may run at the same time, each with its own lane number
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "carry/buffers.h"
#include "engine/bucket.h"
#include "engine/flat.h"
#include "engine/frames.h"
#include "engine/laws.h"
#include "engine/program.h"
#include "frame/tagger.h"
#include "tithe/frame.h"

namespace tithe::engine {

// What does not change while a session lives.
struct Member {
  Rank me = 0;
  int world = 1;
  float divide = 1.0F;
  std::uint64_t seed = 0;
  std::uint64_t run = 0;
  bool force_reference = false;
  int workers = 1;  // lane numbers are 0..workers-1
  Tagging tagging;
  std::shared_ptr<Tags> tags;  // null: frames are not tagged
};

// A chunk in the round that is under way.
struct ChunkState {
  const float* source = nullptr;  // what encode reads as gradient
  bool poisoned = false;          // some frame for it was not finite
  bool present = false;           // leader law: a payload is there
  std::size_t own_bytes = 0;      // of the own payload, once others' may come to it
  ByteView context;
};

// What a step works on, by reference.
struct Where {
  const Part& part;
  const PartLayout& layout;
  const LawRow& law;
  ChunkState& chunk;
  std::span<float> values;
  std::size_t n;
  bool last_phase;
};

class Unit {
 public:
  // ratios: all that use_ratio() may be given.
  Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::uint32_t first_part,
       std::span<const double> ratios);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const Program& program() const { return program_; }
  const Plan& plan() const { return plan_; }
  std::uint64_t plan_hash() const { return plan_hash_; }
  std::span<const TensorLayout> tensors() const { return tensors_; }
  std::size_t values() const { return values_; }
  Channel channel(int part) const { return first_part_ + static_cast<std::uint32_t>(part) + 1; }

  // For the rounds to come: the ratio of every part that follows the schedule. All ranks must use the same.
  void use_ratio(double ratio);
  // A round begins: where this round's gradients lie, in the caller's order.
  void begin(std::span<const Tensor> bucket, std::uint32_t round);
  // Runs one step that is neither send nor recv. The peer of a failure is the frame's source.
  Status run(const Step& step, int lane);
  // The bytes of a send or recv step.
  ByteView outgoing(const Step& step) const { return frames_.whole(step.slot); }
  Bytes incoming(const Step& step) { return frames_.memory(step.slot); }
  void received(const Step& step, std::size_t bytes) { frames_.received(step.slot, bytes); }
  // All steps have run: fills the bucket with NaN where some rank was not finite.
  void end();
  bool finite() const { return finite_; }

  // What the carry keeps moves on (keep), or stays as it was and the bucket is filled with NaN.
  void commit(bool keep);
  carry::Buffers& carry() { return carry_; }

 private:
  friend const LawRow& row_of(Law law);

  Where where(const Step& step);
  const Impl& impl(const Step& step) const { return *impls_[static_cast<std::size_t>(step.part)]; }
  const Settings& settings(const Step& step) const { return settings_[static_cast<std::size_t>(step.part)]; }
  std::span<const int> list(Range r) const { return std::span(program_.indices).subspan(r.first, r.count); }
  bool leads(const Where& w) const {
    return !w.law.one_leads ||
           round_ % static_cast<std::uint32_t>(member_.world) == static_cast<std::uint32_t>(member_.me);
  }
  // Only the last phase settles what is left.
  float* residual_out(const Step& step, const Where& w) {
    return w.last_phase ? carry_.residual_out(step.part, step.chunk) : nullptr;
  }
  std::span<const ByteView> only(ByteView payload, int lane) {
    std::vector<ByteView>& views = views_[static_cast<std::size_t>(lane)];
    views[0] = payload;
    return std::span<const ByteView>(views).first(1);
  }
  Call call(const Step& step, const Where& w, int lane);
  FrameHeader header(const Step& step, const Where& w) const;

  // Steps (steps.cc).
  void load(int part);
  Status own(const Step& step, int lane);
  Status encode(const Step& step, int lane);
  Status check(const Step& step, int lane);
  Status check_frames(const Step& step, int lane);  // those that no step of their own has checked
  Status merge(const Step& step, int lane);
  Status store(const Step& step, int lane);

  // What they are made of.
  Result<Encoded> encode_into(const Step& step, const Where& w, int lane, Bytes out);
  Status decode(const Step& step, const Where& w, int lane, std::span<const ByteView> payloads,
                const Merge& merge);
  // Adds a frame to acc; `after` more come. Poisons the chunk where a sum is not finite.
  Status combine(const Step& step, const Where& w, Bytes acc, int frame, std::size_t after, float* rounding);
  Status sound(const Step& step, const Where& w, int frame);
  bool meets_nonfinite(const Step& step, const Where& w);
  Rank culprit(const Step& step, const Where& w, std::span<const ByteView> payloads) const;

  // What they mean under a law (laws.cc).
  Result<Made> encode_values(const Step& step, const Where& w, int lane);
  Result<Made> encode_own(const Step& step, const Where& w, int lane);
  Result<Made> encode_joined(const Step& step, const Where& w, int lane);
  Status merge_values(const Step& step, const Where& w, int lane);
  Status merge_arrays(const Step& step, const Where& w, int lane);
  Status merge_leader(const Step& step, const Where& w, int lane);
  Status merge_nothing(const Step& step, const Where& w, int lane);
  Status all_payloads(const Step& step, const Where& w, int lane, std::span<const ByteView>& payloads);
  Status one_array(const Step& step, const Where& w, int lane, std::span<const ByteView>& payloads);
  Status leaders_payload(const Step& step, const Where& w, int lane, std::span<const ByteView>& payloads);

  const Member member_;
  const std::vector<TensorLayout> tensors_;
  const Plan plan_;
  const std::uint64_t plan_hash_;
  std::vector<Settings> settings_;  // by part, as of this round
  std::uint64_t round_hash_;        // plan_hash_, and with a schedule the round's ratio
  const std::uint32_t first_part_;
  const Program program_;
  std::size_t values_ = 0;
  std::vector<std::uint32_t> draws_;  // by part: the number of its random draws, from its first key
  std::vector<const Impl*> impls_;    // by part
  std::vector<CodecId> ids_;          // by part

  std::vector<Arena> scratch_;                // by lane
  std::vector<std::vector<ByteView>> views_;  // by lane
  Frames frames_;
  Flat flat_;
  carry::Buffers carry_;
  std::vector<ChunkState> chunks_;
  std::uint32_t round_ = 0;
  std::atomic<bool> finite_{true};
};

}  // namespace tithe::engine
