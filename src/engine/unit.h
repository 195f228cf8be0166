// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Unit is one bucket layout ready to run: its program, the memory for its frames, the residuals of its
// tensors, and the steps' bodies. It knows no threads and no transport: the runner decides who runs what, when.
//
//   once      every step of a program runs once per round, after all steps that it waits for
//   apart     steps that do not wait for each other may run at the same time, each with its own lane number
//   undone    residuals, velocities and memories change at commit() only
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine/program.h"
#include "frame/tagger.h"
#include "tithe/frame.h"
#include "tithe/session.h"

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

struct TensorLayout {
  std::string key;
  std::size_t n = 0;
  DType dtype = DType::kF32;
  std::size_t first = 0;  // offset in the unit, values
  std::size_t place = 0;  // its number in the caller's bucket
  std::size_t row = 0;    // Tensor::row
};

struct FreeBytes {
  void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Arena = std::unique_ptr<std::uint8_t[], FreeBytes>;
Arena make_arena(std::size_t bytes);  // 64-byte aligned, not touched

class Unit {
 public:
  // ratios: all that use_ratio() may be given.
  Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::uint32_t first_part,
       std::span<const double> ratios);

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
  ByteView outgoing(const Step& step) const;
  Bytes incoming(const Step& step);
  void received(const Step& step, std::size_t bytes);
  // All steps have run: fills the bucket with NaN where some rank was not finite.
  void end();
  bool finite() const { return finite_; }

  // Residuals and memories move on (keep), or stay as they were and the bucket is filled with NaN.
  void commit(bool keep);
  bool has_residual() const { return !residual_[0].empty(); }
  std::span<float> residual(const TensorLayout& t) { return slice(residual_[now_], t); }
  std::span<float> velocity(const TensorLayout& t) { return slice(velocity_[now_], t); }
  std::span<std::uint8_t> memory(const TensorLayout& t);  // of its codec; empty where that has none
  // What a memory of this tensor means: the codecs, their settings and where they cut. 0 where there is none.
  std::uint64_t memory_kind(const TensorLayout& t) const;
  // What a tensor is owed comes from elsewhere. Parts that keep no residual send it all the same.
  void adopt(const TensorLayout& t, std::span<const float> residual);

 private:
  struct FrameState {
    std::uint8_t flags = 0;
    std::uint16_t parts = 1;
    Range makers = {};      // the ranks whose payloads it holds (Program::indices); the first made it
    std::size_t bytes = 0;  // of header and payload
  };
  struct ChunkState {
    const float* source = nullptr;  // what encode reads as gradient
    bool poisoned = false;          // some frame for it was not finite
    bool present = false;           // leader law: a payload is there
    std::size_t own_bytes = 0;
    ByteView context;
  };
  struct Where {  // of a step: everything by reference
    const Part& part;
    const PartLayout& layout;
    Law law;
    ChunkState& chunk;
    std::size_t offset;  // of the chunk in the unit
    std::span<float> values;
    std::size_t n;
  };

  static std::span<float> slice(std::vector<float>& v, const TensorLayout& t) {
    return v.empty() ? std::span<float>{} : std::span<float>(v).subspan(t.first, t.n);
  }
  Where where(const Step& step);
  bool staged(std::size_t part) const {
    return !staging_.empty() && flat_[part] == staging_.data() + plan_.parts[part].first;
  }
  // body(tensor, layout, from, to): the values [from, to) of the unit that tensor and part share.
  template <typename Body>
  void each_tensor(const Part& p, Body body);
  const Impl& impl(const Codec& codec) const {
    return member_.force_reference ? codec.reference() : codec.best(this_machine());
  }
  Bytes slot(int index) {
    const Slot& s = program_.slots[static_cast<std::size_t>(index)];
    return {arena_.get() + s.offset, s.bytes};
  }
  // Where a payload stands in a slot: all but header and trailer.
  Bytes room(int index) {
    const Bytes s = slot(index);
    return s.subspan(kFrameHeaderBytes, s.size() - kFrameHeaderBytes - member_.tagging.trailer());
  }
  ByteView payload(int index) { return slot(index).first(state(index).bytes).subspan(kFrameHeaderBytes); }
  ParsedFrame parsed(int index) {  // of a frame that passed check() or was made here
    const FrameState& s = state(index);
    return {{.flags = s.flags, .source = static_cast<std::uint16_t>(maker(index)), .parts = s.parts},
            payload(index)};
  }
  Rank maker(int index) const { return list(frames_[static_cast<std::size_t>(index)].makers)[0]; }
  FrameState& state(int index) { return frames_[static_cast<std::size_t>(index)]; }
  std::span<const int> list(Range r) const { return std::span(program_.indices).subspan(r.first, r.count); }
  bool last_phase(const Step& step, const Where& w) const {
    return std::size_t{step.phase} + 1 == w.layout.laws.size();
  }
  bool leads(const Where& w) const {
    return w.law != Law::kLeader ||
           round_ % static_cast<std::uint32_t>(member_.world) == static_cast<std::uint32_t>(member_.me);
  }
  float* left(const Step& step, const Where& w);
  Call call(const Step& step, const Where& w, int lane);
  std::span<std::uint8_t> memory(const Step& step, const Where& w, int which);  // of the step's chunk
  FrameHeader header(const Step& step, const Where& w) const;

  void fill_with_nan();
  void load(int part);
  void unload(int part);
  Result<Encoded> encode_into(const Step& step, const Where& w, int lane, Bytes out);
  Status own(const Step& step, int lane);
  Status encode(const Step& step, int lane);
  Status join(const Step& step, Bytes frame, std::size_t& bytes, std::uint16_t& parts);
  Status check(const Step& step, int lane);
  Status merge(const Step& step, int lane);
  Status store(const Step& step, int lane);
  Status decode(const Step& step, const Where& w, int lane, std::span<const ByteView> payloads,
                const Merge& merge);
  Status collect(const Step& step, int lane, std::span<const ByteView>& out);
  // Adds a frame to acc; `after` more come. Poisons the chunk where a sum is not finite.
  Status combine(const Step& step, const Where& w, Bytes acc, int frame, std::size_t after, float* left);
  Status sound(const Step& step, const Where& w, int frame);
  Rank culprit(const Step& step, const Where& w, std::span<const ByteView> payloads) const;

  const Member member_;
  const std::vector<TensorLayout> tensors_;
  const Plan plan_;
  const std::uint64_t plan_hash_;
  std::vector<Settings> settings_;  // by part, as of this round
  std::uint64_t round_hash_;        // plan_hash_, and with a schedule the round's ratio
  const std::uint32_t first_part_;
  const Program program_;
  std::size_t values_ = 0;
  std::vector<std::uint32_t> draws_;  // by part: the tensor number of random draws, from its first key

  Arena arena_;
  std::vector<Arena> scratch_;                // by lane
  std::vector<std::vector<ByteView>> views_;  // by lane
  std::vector<FrameState> frames_;            // by slot
  std::vector<std::uint64_t> heard_;          // by slot: the number of its last tagged frame; they only rise
  std::vector<ChunkState> chunks_;
  std::vector<char> carries_;  // by part: encode reads and writes residuals
  std::vector<char> adopted_;  // by part: it carries only until what it adopted is sent
  std::vector<float> residual_[2], velocity_[2];
  std::vector<std::uint8_t> memory_[2];
  int now_ = 0;  // which of the two is committed

  std::vector<Tensor> bucket_;  // in the order of tensors()
  std::vector<float*> flat_;    // by part: its values, in the caller's memory or in staging
  std::vector<float> staging_;  // for parts whose tensors are no fp32 or do not lie back to back
  std::uint32_t round_ = 0;
  std::atomic<bool> finite_{true};
};

}  // namespace tithe::engine
