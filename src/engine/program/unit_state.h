// SPDX-License-Identifier: Apache-2.0
#pragma once
// The data that all parts of a bucket share, and StepContext, a step in execution. Part runners (part_runner.h) and
// laws (laws.h) receive a StepContext, and access everything else through it.
//
// Threads: a step runs on any compute lane, with that lane's scratch, views and tagger. It holds no lock.
// Owners: a step writes its chunk's values and state, its slot's frame, and its chunk's residual. The graph orders
// steps: of two steps that use the same chunk or slot, one waits for the other, so they never run at the same time, and
// the second sees all writes of the first (the runner's mutex is locked in between). All steps share `finite` and
// `excessive`. These are atomic, and change at most once per round.
// Failure: a step that returns a failure ends the session, and its partial output is never read. A value that is not
// finite is not a failure: the chunk is poisoned, its frames are flagged, and all ranks drop the round.
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/gpus.h"
#include "engine/program/bucket.h"
#include "engine/program/frames.h"
#include "engine/program/laws.h"
#include "engine/program/part_runner.h"
#include "engine/program/part_values.h"
#include "engine/program/program.h"
#include "feedback/error_feedback.h"
#include "frame/pieces.h"
#include "frame/tagger.h"

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

// A part's codec for its exchange between hosts or inside a host, and the runner of the steps of that exchange.
struct PartCodec {
  const Impl* impl = nullptr;
  CodecId id{};
  Settings settings;  // in this round
  const PartRunner* runner = nullptr;
};

struct UnitState {
  UnitState(const Member& member, std::vector<TensorLayout> tensors, Plan plan,
            std::span<const double> ratios, std::span<const feedback::StateKinds> incoming);

  const Member member;
  const std::vector<TensorLayout> tensors;
  const Plan plan;
  const std::uint64_t plan_hash;
  std::uint64_t round_hash;  // plan_hash, combined with the round's ratio if there is a schedule
  std::uint32_t first_part = 0;
  const Program program;
  const float divide;                // by which results are divided
  std::vector<std::uint32_t> draws;  // by part: the key of its random draws, from its first tensor
  std::vector<PartCodec> between;    // by part
  std::vector<PartCodec> inside;     // by part; empty if the part has no exchange inside hosts

  std::vector<Arena> scratch;                // by lane
  std::vector<std::vector<ByteView>> views;  // by lane
  Frames frames;
  PartValues part_values;
  feedback::ErrorFeedback feedback;
  std::vector<ChunkState> chunks;
  std::uint32_t round = 0;
  std::atomic<bool> finite{true};
  std::atomic<bool> excessive{false};
};

// The parts of a plan, as ErrorFeedback needs them.
std::vector<feedback::FeedbackPart> feedback_parts(const Plan& plan, const Program& program, Rank me);

// A failure with the rank that caused it; ok stays ok.
inline Status blame(const Status& status, Rank rank) {
  return status.ok() ? status : Status(status.code(), status.what(), rank);
}

struct StepContext {
  StepContext(UnitState& unit, const Step& step, int lane);

  UnitState& unit;
  const Step& step;
  const int lane;
  const bool is_inside;
  const PartLayout& layout;
  const PartCodec& codec;
  const PartRunner& part;
  const LawRule& law;
  const Chunk begin, end;      // one chunk, or all chunks of the part
  const std::size_t first, n;  // their values in the part
  ChunkState& chunk;
  const bool last_phase;

  std::span<const int> frames() const {  // slots
    return std::span(unit.program.indices).subspan(step.frames.first, step.frames.count);
  }
  bool leads() const {
    const Contribution c = layout.contribution(step.chunk);
    return !law.one_leads || static_cast<int>(unit.round % static_cast<std::uint32_t>(c.of)) == c.at;
  }
  std::span<float> values() const {  // of a part in host memory
    return unit.part_values.values(step.part).subspan(first, n);
  }
  EncodeInput input() const { return unit.feedback.view(step.part, step.chunk, chunk.source, last_phase); }
  Status ours(const Status& status) const { return blame(status, unit.member.me); }

  // ---- Frames
  FrameHeader header(const FrameBody& body = {}) const;
  Status seal(const FrameBody& body) const;
  // Records the own payload, which is in own_slot.
  void keep_own(const Encoded& done) const;
  // Validates the received frame of a check step.
  Status check(const EachPiece* each = nullptr) const;
  // True if this step has to check the frame.
  bool unchecked(int frame) const {
    return unit.program.check_of[static_cast<std::size_t>(frame)] >= 0 && !unit.frames[frame].known;
  }
  // For a frame that this step has to check.
  Status check_frame(int frame, const EachPiece* each = nullptr) const;
  Status check_frames(std::span<const int> frames) const;  // skips frames that are checked already
  // True if a frame of this chunk was flagged as not finite, now or before.
  bool meets_nonfinite(std::span<const int> frames) const;

  // ---- Codecs
  Call call() const;
  // Checks a payload before other payloads are added to it.
  Status sound(int frame) const;
  // The rank whose payload made decode fail.
  Rank culprit(PayloadViews payloads) const;
  // `largest`: the largest magnitude of values of the result. Sets `excessive` if it exceeds feedback::kMaxResidual.
  // Poisons the chunk if it is not finite.
  void see_largest(float largest) const;
};

}  // namespace tithe::engine
