// SPDX-License-Identifier: Apache-2.0
// The bodies of a unit's steps that do not depend on the law. The others are in laws.cc.
//
// Threads: a step runs on any compute lane, with that lane's scratch, views and tagger. It holds no lock.
// Owners: a step writes its chunk's values and state, its slot's frame, and its chunk's residual. The graph orders
// steps: of two steps that use the same chunk or slot, one waits for the other, so they never run at the same time, and
// the second sees all writes of the first (the runner's mutex is locked in between). All steps share finite_ and
// excessive_. These are atomic, and change at most once per round.
// Failure: a step that returns a failure ends the session, and its partial output is never read. A value that is not
// finite is not a failure: the chunk is poisoned, its frames are flagged, and all ranks drop the round.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/finite.h"
#include "base/rng.h"
#include "engine/program/unit.h"
#include "feedback/residual_store.h"

namespace tithe::engine {
namespace {

// The number of values in a block that is read more than once while it is in the L1 cache.
constexpr std::size_t kBlock = kPieceBytes / sizeof(float);

}  // namespace

StepContext Unit::context_of(const Step& step) {
  const auto p = static_cast<std::size_t>(step.part);
  const PartLayout& layout = program_.parts[p];
  const std::size_t n = layout.size(step.chunk);
  const bool inside = step.stage == Stage::kInside;
  return {
      plan_.parts[p],
      layout,
      row_of(inside ? Law::kDecode : layout.laws[step.phase]),
      chunks_[static_cast<std::size_t>(layout.first_chunk) + static_cast<std::size_t>(step.chunk)],
      on_device(step) ? std::span<float>() : part_values_.values(step.part).subspan(layout.at(step.chunk), n),
      n,
      inside || std::size_t{step.phase} + 1 == layout.laws.size(),
      layout.contribution(step.chunk),
      (inside ? *plan_.parts[p].inside : plan_.parts[p].spec).codec->traits.uncompressed};
}

Bytes Unit::scratch(int lane) const {
  return {scratch_[static_cast<std::size_t>(lane)].get(), program_.scratch_bytes};
}

Call Unit::call(const Step& step, const StepContext& w, int lane) {
  return {.settings = settings(step),
          .seed = mix64(member_.seed ^ mix64(static_cast<std::uint64_t>(member_.me) + 1)),
          .shared_seed = member_.seed,
          .round = round_,
          .tensor = draws_[static_cast<std::size_t>(step.part)],
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .context = w.chunk.context,
          .scratch = scratch(lane),
          .memory = step.stage == Stage::kInside ? ByteView{} : feedback_.memory(step.part, step.chunk)};
}

FrameHeader Unit::header(const Step& step, const StepContext& w) const {
  return {.codec = coding(step).id,
          .run = member_.run,
          .round = round_,
          .tensor = first_part_ + static_cast<std::uint32_t>(step.part),
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .source = static_cast<std::uint16_t>(member_.me),
          .values = w.n,
          .plan = round_hash_,
          .checksum = member_.tagging.checksum};
}

Status Unit::run(const Step& step, int lane) {
  if (step.loads) TITHE_TRY(load(step, lane));
  switch (step.kind) {
    case StepKind::kLoad:
      return load(step, lane);
    case StepKind::kOwn:
      return own(step, lane);
    case StepKind::kEncode:
      return encode(step, lane);
    case StepKind::kCheck:
      return check(step, lane);
    case StepKind::kMerge:
      return merge(step, lane);
    case StepKind::kStore:
      return store(step, lane);
    case StepKind::kSend:
    case StepKind::kRecv:
      break;
  }
  TITHE_ASSERT(false);
  return {};
}

// Loads a chunk, or a whole part.
Status Unit::load(const Step& step, int lane) {
  const PartLayout& layout = program_.parts[static_cast<std::size_t>(step.part)];
  const bool whole = step.chunk == kWholePart;
  const Chunk begin = whole ? 0 : step.chunk, end = whole ? layout.chunks : step.chunk + 1;
  const std::size_t first = layout.at(begin), n = layout.at(end) - first;
  if (on_device(step)) return ours(gpu_->load(lane, step.part, first, n));
  if (is_on_device()) TITHE_TRY(ours(gpu_->bring(lane, step.part, first, n)));
  // In an all-gather only the own chunk has values. On a GPU, the wait for the caller's work above is needed for all
  // chunks.
  if (plan_.kind == RoundKind::kAllGather && step.chunk != member_.me) return {};
  const std::span<float> values = part_values_.values(step.part).subspan(first, n);
  part_values_.load(step.part, first, n);
  if (!member_.place().works()) std::ranges::fill(values, 0.0F);
  const float* source = feedback_.load(step.part, first, values);
  for (Chunk c = begin; c < end; ++c)
    chunks_[static_cast<std::size_t>(layout.first_chunk) + static_cast<std::size_t>(c)].source =
        source + (layout.at(c) - first);
  return {};
}

Status Unit::unload(const Step& step, const StepContext& w, int lane) {
  const std::size_t first = w.layout.at(step.chunk);
  if (on_device(step)) return ours(gpu_->unload(lane, step.part, first, w.n));
  part_values_.unload(step.part, first, w.n);
  return is_on_device() ? ours(gpu_->take_back(lane, step.part, first, w.n)) : Status{};
}

// ---- Outgoing frames

Result<Encoded> Unit::encode_into(const Step& step, const StepContext& w, int lane, Bytes out) {
  if (on_device(step)) return encode_on_device(step, w, lane, out);
  const EncodeInput input = feedback_.view(step.part, step.chunk, w.chunk.source, w.last_phase);
  Result<Encoded> done = impl(step).encode(call(step, w, lane), input, out);
  if (!done.ok()) return Status(done.status().code(), done.status().what(), member_.me);
  if (!done->finite)
    w.chunk.poisoned = true;
  else if (w.last_phase)
    feedback_.update_residual(step.part, step.chunk, impl(step), out.first(done->bytes));
  return done;
}

Status Unit::own(const Step& step, int lane) {
  const StepContext w = context_of(step);
  if (w.chunk.poisoned || !leads(w)) return {};
  const Result<Encoded> done = encode_into(step, w, lane, frames_.room(step.own_slot));
  if (!done.ok()) return done.status();
  w.chunk.own_bytes = done->bytes;
  w.chunk.present = true;
  frames_[step.own_slot] = {.bytes = kFrameHeaderBytes + done->bytes};
  return {};
}

Result<FrameBody> Unit::encode_values(const Step& step, const StepContext& w, int lane) {
  if (!leads(w)) return FrameBody{.flags = kFlagEmpty};
  const Result<Encoded> done = encode_into(step, w, lane, frames_.room(step.slot));
  if (!done.ok()) return done.status();
  return done->finite ? FrameBody{.bytes = done->bytes} : FrameBody{.flags = kFlagNonFinite};
}

// Makes and seals the frame of a chunk. If merge_onto() has computed the checksum, the payload is not read again.
Status Unit::encode(const Step& step, int lane) {
  const StepContext w = context_of(step);
  FrameBody made{.flags = kFlagNonFinite};
  if (!w.chunk.poisoned) {
    const Result<FrameBody> done =
        step.direct ? encode_values(step, w, lane) : (this->*w.law.encode_merged)(step, w, lane);
    if (!done.ok()) return done.status();
    made = *done;
  }
  FrameHeader h = header(step, w);
  h.flags = made.flags;
  h.parts = made.parts;
  h.payload_bytes = made.bytes;
  const Bytes frame = frames_.memory(step.slot);
  Tags* const tags = member_.tags.get();
  const auto known = made.flags == 0 && !step.direct ? w.chunk.checksum : std::nullopt;
  if (known)
    TITHE_TRY(tags == nullptr ? seal_frame(h, frame, *known)
                              : seal_frame(h, frame, *known, tags->lane(lane), tags->next(), step.cover));
  else
    TITHE_TRY(tags == nullptr ? seal_frame(h, frame)
                              : seal_frame(h, frame, tags->lane(lane), tags->next(), step.cover));
  frames_[step.slot] = {made.flags, made.parts, step.makers, kFrameHeaderBytes + made.bytes};
  return {};
}

// ---- Incoming frames

// Validates a received frame: checksum and tag; the number, which must be new; the source, which must be the expected
// maker; and the header, which must match this step. Each failure names the rank that must have caused it.
Status Unit::check(const Step& step, int lane, const EachPiece* each) {
  const StepContext w = context_of(step);
  const ByteView bytes = frames_.whole(step.slot);
  Tagger* const tagger = member_.tags == nullptr ? nullptr : &member_.tags->lane(lane);
  const Result<ParsedFrame> parsed = parse_frame(
      bytes,
      Reading{.tagger = tagger, .least = step.cover, .checksum = member_.tagging.checksum, .each = each});
  if (!parsed.ok()) {
    // If strangers can send, the source in a frame without a valid tag means nothing.
    const Rank sender = member_.strangers ? parsed.status().peer() : step.peer;
    return Status(parsed.status().code(), parsed.status().what(), sender);
  }
  if (member_.tags != nullptr && !frames_.take_number(step.slot, parsed->number))
    return {Code::kCorrupt, "frame: duplicate: its number was used in an earlier round",
            member_.strangers ? Status::kNoPeer : step.peer};
  const FrameHeader& h = parsed->header;
  const Rank maker = list(step.makers)[0];
  if (h.source != maker)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: its header names rank {} as the sender, expected rank {}",
                        step.peer, h.source, maker),
            member_.strangers ? Status::kNoPeer : step.peer};
  if (h.plan != round_hash_ && round_hash_ != plan_hash_ && h.run == member_.run)
    return {Code::kMismatch,
            fmt::format("rank {} has another ratio in this round: report the same evaluations and learning "
                        "rates on all ranks",
                        h.source),
            h.source};
  if (Status wrong = check_frame(h, header(step, w), frames_.room(step.slot).size()); !wrong.ok()) {
    // A tagged frame in a wrong place is a valid frame that was replayed in another place.
    const bool moved = member_.tags != nullptr && wrong.code() == Code::kCorrupt;
    return moved ? Status(wrong.code(), wrong.what()) : wrong;
  }
  const bool odd = (h.flags == kFlagConcat && !w.law.joins) || (h.flags == kFlagEmpty && !w.law.one_leads) ||
                   (w.law.joins && h.flags != kFlagNonFinite && h.parts != step.makers.count);
  if (odd)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: flags {} with {} parts under the {} law", h.source, h.flags,
                        h.parts, name(w.law.law)),
            maker};
  frames_[step.slot] = {h.flags, h.parts, step.makers, kFrameHeaderBytes + parsed->payload.size()};
  return {};
}

// True if a frame of this chunk was flagged as not finite, now or before.
bool Unit::meets_nonfinite(std::span<const int> frames, const StepContext& w) {
  for (const int f : frames)
    if ((frames_[f].flags & kFlagNonFinite) != 0) w.chunk.poisoned = true;
  return w.chunk.poisoned;
}

Status Unit::check_frames(std::span<const int> frames, int lane) {
  for (const int f : frames)
    if (const int check_of = program_.check_of[static_cast<std::size_t>(f)];
        check_of >= 0 && !frames_[f].known)
      TITHE_TRY(check(program_.checks[static_cast<std::size_t>(check_of)], lane));
  return {};
}

bool Unit::reads_at_once(const StepContext& w, int frame) const {
  return w.plain && w.n > 0 && program_.check_of[static_cast<std::size_t>(frame)] >= 0 &&
         !frames_[frame].known && frames_[frame].bytes == kFrameHeaderBytes + sizeof(float) * w.n;
}

Status Unit::merge(const Step& step, int lane) {
  const StepContext w = context_of(step);
  w.chunk.checksum.reset();
  if (step.onto) return merge_onto(step, w, lane);
  TITHE_TRY(check_frames(list(step.frames), lane));
  return meets_nonfinite(list(step.frames), w) ? Status{} : (this->*w.law.merge_frames)(step, w, lane);
}

Status Unit::store(const Step& step, int lane) {
  const StepContext w = context_of(step);
  const std::span<const int> frames = list(step.frames);
  if (frames.size() == 1 && w.last_phase && !w.chunk.poisoned && reads_at_once(w, frames[0]))
    return store_at_once(step, w, lane);
  TITHE_TRY(check_frames(frames, lane));
  std::span<const ByteView> payloads;
  if (!meets_nonfinite(frames, w)) TITHE_TRY((this->*w.law.result_of)(step, w, lane, payloads));
  if (w.chunk.poisoned) {
    finite_ = false;
    return {};
  }
  if (!w.last_phase) {
    w.chunk.context = payloads[0];
    w.chunk.own_bytes = 0;
    w.chunk.present = false;
    return {};
  }
  bool finite = true;
  TITHE_TRY(write(step, w, lane, payloads, finite));
  if (!finite) {
    w.chunk.poisoned = true;
    finite_ = false;
    return {};
  }
  return unload(step, w, lane);
}

// Like store(), in one pass: checks the frame and decodes it piece by piece.
Status Unit::store_at_once(const Step& step, const StepContext& w, int lane) {
  const int frame = list(step.frames)[0];
  const ByteView payload = frames_.payload(frame);
  const Call c = call(step, w, lane);
  bool finite = true;
  Status decoded;
  const auto each = [&](std::size_t at, std::size_t bytes) {
    const ByteView piece = payload.subspan(at, bytes);
    const std::span<float> values = w.values.subspan(at / sizeof(float), bytes / sizeof(float));
    if (Status s = impl(step).decode(c, {&piece, 1}, {.divide = divide_}, values); !s.ok())
      decoded = std::move(s);
    finite = see_result(values) && finite;
  };
  const EachPiece pieces = std::ref(each);
  const int check_of = program_.check_of[static_cast<std::size_t>(frame)];
  TITHE_TRY(check(program_.checks[static_cast<std::size_t>(check_of)], lane, &pieces));
  if (!decoded.ok()) return Status(decoded.code(), decoded.what(), frames_.maker(frame));
  if (!finite) {
    w.chunk.poisoned = true;
    finite_ = false;
    return {};
  }
  return unload(step, w, lane);
}

// The sum of finite payloads may not be finite. All ranks have the same bits, so all detect it. With a plain codec
// the values are checked block by block, while they are in the L1 cache.
Status Unit::write(const Step& step, const StepContext& w, int lane, std::span<const ByteView> payloads,
                   bool& finite) {
  if (on_device(step)) {
    float largest = 0;
    TITHE_TRY(decode_on_device(step, w, lane, payloads, false, divide_, &largest));
    finite = see_largest(largest);
    return {};
  }
  const Merge merge{.divide = divide_};
  const bool by_block = w.plain && payloads.size() == 1 && payloads[0].size() == sizeof(float) * w.n;
  if (!by_block) {
    TITHE_TRY(decode(step, w, lane, payloads, merge));
    finite = see_result(w.values);
    return {};
  }
  const Call c = call(step, w, lane);
  for (std::size_t at = 0; at < w.n; at += kBlock) {
    const std::span<float> block = w.values.subspan(at, std::min(kBlock, w.n - at));
    const ByteView payload = payloads[0].subspan(sizeof(float) * at, sizeof(float) * block.size());
    if (const Status s = impl(step).decode(c, {&payload, 1}, merge, block); !s.ok())
      return Status(s.code(), s.what(), culprit(step, w, payloads));
    finite = see_result(block) && finite;
  }
  return {};
}

bool Unit::see_largest(float largest) {
  if (largest <= feedback::kMaxResidual) return true;
  excessive_ = true;
  return is_finite(largest);
}

// ---- Calls of codecs, and the rank that a failure names

Result<ByteView> Unit::own_piece(const Call& call, const Impl& by, const EncodeInput& input, Bytes room) {
  const std::size_t bytes = sizeof(float) * input.n;
  if (input.residual == nullptr) return ByteView(reinterpret_cast<const std::uint8_t*>(input.grad), bytes);
  const Result<Encoded> done = by.encode(call, input, room.first(bytes));
  if (!done.ok()) return Status(done.status().code(), done.status().what(), member_.me);
  return ByteView(room.first(bytes));
}

Status Unit::decode(const Step& step, const StepContext& w, int lane, std::span<const ByteView> payloads,
                    const Merge& merge) {
  Call c = call(step, w, lane);
  if (step.kind == StepKind::kStore) c.next_memory = feedback_.next_memory(step.part, step.chunk);
  const Status s = impl(step).decode(c, payloads, merge, w.values);
  return s.ok() ? s : Status(s.code(), s.what(), culprit(step, w, payloads));
}

Status Unit::combine(const Step& step, const StepContext& w, int lane, Bytes acc, int frame,
                     std::size_t after, float* rounding) {
  Call c = call(step, w, lane);
  c.ranks = static_cast<std::uint32_t>(static_cast<std::size_t>(w.contribution.payloads) -
                                       // Each payload that was already added counts as one more rank.
                                       after);
  const Result<Combined> done = impl(step).combine(c, w.n, acc, frames_.payload(frame), rounding);
  if (!done.ok()) return Status(done.status().code(), done.status().what(), frames_.maker(frame));
  if (!done->finite) w.chunk.poisoned = true;
  return {};
}

// Checks a payload before other payloads are added to it.
Status Unit::sound(const Step& step, const StepContext& w, int lane, int frame) {
  const Call c{.settings = settings(step), .phase = step.phase, .scratch = scratch(lane)};
  const Status s = impl(step).check(c, w.n, frames_.payload(frame));
  return s.ok() ? s : Status(s.code(), s.what(), frames_.maker(frame));
}

// Finds the rank whose payload fails its check. If the frame has one payload, its maker is named. If all payloads
// pass, no rank is named.
Rank Unit::culprit(const Step& step, const StepContext& w, std::span<const ByteView> payloads) const {
  const Impl& by = impl(step);
  const Call c{.settings = settings(step), .phase = step.phase};
  std::size_t k = 0;
  for (const int f : list(step.frames))
    for (const Rank r : frames_.makers(f)) {
      // The payloads were added before: each has passed its check.
      if (k == payloads.size()) return Status::kNoPeer;
      if (!by.check(c, w.n, payloads[k++]).ok()) return r;
    }
  return step.frames.count == 1 ? frames_.maker(list(step.frames)[0]) : Status::kNoPeer;
}

}  // namespace tithe::engine
