// SPDX-License-Identifier: Apache-2.0
// The bodies of a unit's steps on chunks: encode, check, merge and store, under each law.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/leave.h"
#include "engine/feedback.h"
#include "engine/unit.h"

namespace tithe::engine {

// Only the last phase settles what is left.
float* Unit::left(const Step& step, const Where& w) {
  if (!carries_[static_cast<std::size_t>(step.part)] || !last_phase(step, w)) return nullptr;
  return residual_[1 - now_].data() + w.offset;
}

Call Unit::call(const Step& step, const Where& w, int lane) {
  const auto part = static_cast<std::size_t>(step.part);
  return {.settings = settings_[part],
          .seed = mix64(member_.seed ^ mix64(static_cast<std::uint64_t>(member_.me) + 1)),
          .shared_seed = member_.seed,
          .round = round_,
          .tensor = draws_[part],
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .context = w.chunk.context,
          .scratch = {scratch_[static_cast<std::size_t>(lane)].get(), program_.scratch_bytes},
          .memory = memory(step, w, now_)};
}

std::span<std::uint8_t> Unit::memory(const Step& step, const Where& w, int which) {
  const auto c = static_cast<std::size_t>(step.chunk);
  return std::span(memory_[which]).subspan(w.layout.memory[c], w.layout.memory[c + 1] - w.layout.memory[c]);
}

FrameHeader Unit::header(const Step& step, const Where& w) const {
  return {.codec = w.part.spec.codec->id,
          .run = member_.run,
          .round = round_,
          .tensor = first_part_ + static_cast<std::uint32_t>(step.part),
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .source = static_cast<std::uint16_t>(member_.me),
          .values = w.n,
          .plan = round_hash_};
}

Result<Encoded> Unit::encode_into(const Step& step, const Where& w, int lane, Bytes out) {
  const auto part = static_cast<std::size_t>(step.part);
  const Carry carry{w.chunk.source, carries_[part] ? residual_[now_].data() + w.offset : nullptr,
                    left(step, w), w.n};
  Result<Encoded> done = impl(*w.part.spec.codec).encode(call(step, w, lane), carry, out);
  if (!done.ok()) return Status(done.status().code(), done.status().what(), member_.me);
  if (!done->finite) {
    w.chunk.poisoned = true;
  } else if (carries_[part] && w.part.spec.feedback.kind == Feedback::kDecay && last_phase(step, w)) {
    forget(w.part.spec.feedback, {carry.left, w.n});
  } else if (w.part.spec.feedback.mask && last_phase(step, w)) {
    mask_velocity(out.first(done->bytes), velocity_[1 - now_].data() + w.offset);
  }
  return done;
}

Status Unit::own(const Step& step, int lane) {
  const Where w = where(step);
  if (w.chunk.poisoned || !leads(w)) return {};
  const Result<Encoded> done = encode_into(step, w, lane, room(step.own_slot));
  if (!done.ok()) return done.status();
  w.chunk.own_bytes = done->bytes;
  w.chunk.present = true;
  state(step.own_slot) = {.bytes = kFrameHeaderBytes + done->bytes};
  return {};
}

Status Unit::encode(const Step& step, int lane) {
  const Where w = where(step);
  const Bytes frame = slot(step.slot);
  std::size_t bytes = 0;
  std::uint16_t parts = 1;
  std::uint8_t flags = 0;
  if (w.chunk.poisoned) {
    flags = kFlagNonFinite;
  } else if (step.direct) {
    if (leads(w)) {
      const Result<Encoded> done = encode_into(step, w, lane, room(step.slot));
      if (!done.ok()) return done.status();
      bytes = done->finite ? done->bytes : 0;
      flags = done->finite ? 0 : kFlagNonFinite;
    } else {
      flags = kFlagEmpty;
    }
  } else if (w.law == Law::kConcat) {
    TITHE_TRY(join(step, frame.first(frame.size() - member_.tagging.trailer()), bytes, parts));
    flags = kFlagConcat;
  } else {
    bytes = w.chunk.own_bytes;
    flags = w.chunk.present ? 0 : kFlagEmpty;
  }
  FrameHeader h = header(step, w);
  h.flags = flags;
  h.parts = parts;
  h.payload_bytes = bytes;
  if (member_.tags == nullptr) {
    TITHE_TRY(seal_frame(h, frame));
  } else {
    TITHE_TRY(seal_frame(h, frame, member_.tags->lane(lane), member_.tags->next(), step.cover));
  }
  state(step.slot) = {flags, parts, step.makers, kFrameHeaderBytes + bytes};
  return {};
}

// Own payload first, then those that were merged, in the order of the graph.
Status Unit::join(const Step& step, Bytes frame, std::size_t& bytes, std::uint16_t& parts) {
  std::size_t total = 1;
  for (const int f : list(step.frames)) total += state(f).parts;
  if (total > kMaxParts)
    return {Code::kUnsupported, fmt::format("{} payloads in one frame, at most {}", total, kMaxParts)};
  std::size_t at = kFrameHeaderBytes + 8 * total;
  std::size_t k = 0;
  const auto append = [&](ByteView p) {
    if (at + p.size() > frame.size()) return false;
    wire::put(frame.data() + kFrameHeaderBytes + 8 * k++, std::uint64_t{p.size()});
    if (!p.empty()) std::memcpy(frame.data() + at, p.data(), p.size());
    at += p.size();
    return true;
  };
  bool fits = append(payload(step.own_slot));
  ByteView pieces[kMaxParts];
  for (const int f : list(step.frames)) {
    TITHE_TRY(split_parts(parsed(f), pieces));
    for (std::size_t i = 0; i < state(f).parts; ++i) fits = fits && append(pieces[i]);
  }
  if (!fits) return {Code::kCorrupt, "joined payloads are longer than their ranks can have made"};
  bytes = at - kFrameHeaderBytes;
  parts = static_cast<std::uint16_t>(total);
  return {};
}

Status Unit::check(const Step& step, int lane) {
  const Where w = where(step);
  const ByteView bytes = ByteView(slot(step.slot)).first(state(step.slot).bytes + member_.tagging.trailer());
  const Result<ParsedFrame> parsed =
      member_.tags == nullptr ? parse_frame(bytes) : parse_frame(bytes, member_.tags->lane(lane), step.cover);
  if (!parsed.ok()) {
    // Without its tag a frame says nothing about who sent it.
    const Rank sender = member_.tags == nullptr ? step.peer : parsed.status().peer();
    return Status(parsed.status().code(), parsed.status().what(), sender);
  }
  if (std::uint64_t& last = heard_[static_cast<std::size_t>(step.slot)]; member_.tags != nullptr) {
    if (parsed->number <= last)
      return {Code::kCorrupt, "frame: it came before: its number was used in an earlier round"};
    last = parsed->number;
  }
  const FrameHeader& h = parsed->header;
  const Rank maker = list(step.makers)[0];
  if (h.source != maker)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: it calls itself rank {}'s, where rank {}'s is due", step.peer,
                        h.source, maker),
            member_.tags == nullptr ? step.peer : Status::kNoPeer};
  if (h.plan != round_hash_ && round_hash_ != plan_hash_ && h.run == member_.run)
    return {Code::kMismatch,
            fmt::format(
                "rank {} has another ratio in this round: tell all ranks of the same evaluations and rates",
                h.source),
            h.source};
  if (Status wrong = check_frame(h, header(step, w), room(step.slot).size()); !wrong.ok()) {
    // A tagged frame in a wrong place is a right one of another place that somebody sent again.
    const bool moved = member_.tags != nullptr && wrong.code() == Code::kCorrupt;
    return moved ? Status(wrong.code(), wrong.what()) : wrong;
  }
  const bool joined = w.law == Law::kConcat && h.flags != kFlagNonFinite;
  const bool odd = (h.flags == kFlagConcat && w.law != Law::kConcat) ||
                   (h.flags == kFlagEmpty && w.law != Law::kLeader) ||
                   (joined && h.parts != step.makers.count);
  if (odd)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: flags {} with {} parts under the {} law", h.source, h.flags,
                        h.parts, name(w.law)),
            maker};
  state(step.slot) = {h.flags, h.parts, step.makers, kFrameHeaderBytes + parsed->payload.size()};
  return {};
}

Status Unit::combine(const Step& step, const Where& w, Bytes acc, int frame, std::size_t after,
                     float* rounding) {
  const Phase& phase = w.part.spec.codec->phases[step.phase];
  Call c = call(step, w, 0);
  c.ranks = static_cast<std::uint32_t>(static_cast<std::size_t>(member_.world) - after);  // each has one more
  const Result<Combined> done = phase.combine(c, w.n, acc, payload(frame), rounding);
  if (!done.ok()) return Status(done.status().code(), done.status().what(), maker(frame));
  if (!done->finite) w.chunk.poisoned = true;
  return {};
}

// A payload by itself, before others are added to it.
Status Unit::sound(const Step& step, const Where& w, int frame) {
  const Phase& phase = w.part.spec.codec->phases[step.phase];
  const Status s = phase.check(settings_[static_cast<std::size_t>(step.part)], w.n, payload(frame));
  return s.ok() ? s : Status(s.code(), s.what(), maker(frame));
}

Status Unit::merge(const Step& step, int lane) {
  const Where w = where(step);
  for (const int f : list(step.frames))
    if ((state(f).flags & kFlagNonFinite) != 0) w.chunk.poisoned = true;
  if (w.chunk.poisoned) return {};
  switch (w.law) {
    case Law::kDecode: {
      std::span<const ByteView> payloads;
      TITHE_TRY(collect(step, lane, payloads));
      TITHE_TRY(decode(step, w, lane, payloads, {.base = w.chunk.source}));
      w.chunk.source = w.values.data();
      return {};
    }
    case Law::kSum:
    case Law::kMax: {
      const Bytes acc = slot(step.slot).subspan(kFrameHeaderBytes, w.chunk.own_bytes);
      // In the order of ranks, this one in its place: who adds does not change a sum. Lower ranks' payloads are added
      // to the first of them, where it was received.
      const std::span<const int> frames = list(step.frames);
      const auto before = static_cast<std::size_t>(step.before);
      std::size_t after = frames.size();
      if (before > 1) {
        TITHE_TRY(sound(step, w, frames[0]));
        const Bytes lower = slot(frames[0]).subspan(kFrameHeaderBytes, payload(frames[0]).size());
        for (const int f : frames.subspan(1, before - 1)) {
          TITHE_TRY(combine(step, w, lower, f, --after, left(step, w)));
          if (w.chunk.poisoned) return {};  // what they make is no payload now
        }
        TITHE_TRY(combine(step, w, acc, frames[0], --after, left(step, w)));
      }
      for (const int f : frames.subspan(before > 1 ? before : 0)) {
        if (w.chunk.poisoned) return {};
        TITHE_TRY(combine(step, w, acc, f, --after, left(step, w)));
      }
      return {};
    }
    case Law::kLeader:
      for (const int f : list(step.frames)) {
        if (state(f).flags == kFlagEmpty) continue;
        if (w.chunk.present) return {Code::kCorrupt, fmt::format("rank {} leads too", maker(f)), maker(f)};
        TITHE_TRY(sound(step, w, f));  // from here on it travels in this rank's name
        const ByteView p = payload(f);
        if (!p.empty()) std::memcpy(slot(step.slot).data() + kFrameHeaderBytes, p.data(), p.size());
        w.chunk.own_bytes = p.size();
        w.chunk.present = true;
      }
      return {};
    case Law::kConcat:  // encode joins them
      return {};
  }
  return {};
}

Status Unit::store(const Step& step, int lane) {
  const Where w = where(step);
  const std::span<const int> frames = list(step.frames);
  for (const int f : frames)
    if ((state(f).flags & kFlagNonFinite) != 0) w.chunk.poisoned = true;
  if (w.chunk.poisoned) {
    finite_ = false;
    return {};
  }
  std::span<const ByteView> payloads;
  ByteView whole;
  if (w.law == Law::kDecode || w.law == Law::kConcat) {
    TITHE_TRY(collect(step, lane, payloads));
  } else {
    int source = frames[0];
    if (w.law == Law::kLeader)
      for (const int f : frames)
        if (state(f).flags != kFlagEmpty) source = f;
    if (state(source).flags == kFlagEmpty) return {Code::kCorrupt, "no rank led", maker(source)};
    whole = payload(source);
    if (step.slot >= 0) {  // several: combined here, and one rank keeps the rounding that all make alike
      TITHE_TRY(sound(step, w, source));  // what others add to it must not make it good
      const Bytes acc = room(step.slot);
      if (whole.size() > acc.size()) return {Code::kCorrupt, "payload longer than its bound", maker(source)};
      if (!whole.empty()) std::memcpy(acc.data(), whole.data(), whole.size());
      std::size_t after = frames.size() - 1;
      for (const int f : frames.subspan(1))
        TITHE_TRY(
            combine(step, w, acc.first(whole.size()), f, --after, member_.me == 0 ? left(step, w) : nullptr));
      if (w.chunk.poisoned) {
        finite_ = false;
        return {};
      }
      whole = acc.first(whole.size());
    }
    payloads = {&whole, 1};
    if (!last_phase(step, w)) {
      if (step.slot < 0) TITHE_TRY(sound(step, w, source));
      w.chunk.context = whole;
      w.chunk.own_bytes = 0;
      w.chunk.present = false;
      return {};
    }
  }
  TITHE_TRY(decode(step, w, lane, payloads, {.divide = member_.divide}));
  // Finite payloads may have a sum that is not: all ranks hold the same bits and decide alike.
  if (!codec::all_finite(w.values)) {
    w.chunk.poisoned = true;
    finite_ = false;
  }
  return {};
}

// The payloads of a step's frames, in the order of the graph.
Status Unit::collect(const Step& step, int lane, std::span<const ByteView>& out) {
  std::vector<ByteView>& views = views_[static_cast<std::size_t>(lane)];
  std::size_t k = 0;
  for (const int f : list(step.frames)) {
    if (k + state(f).parts > views.size()) return {Code::kCorrupt, "more payloads than ranks", maker(f)};
    TITHE_TRY(split_parts(parsed(f), std::span(views).subspan(k)));
    k += state(f).parts;
  }
  out = std::span<const ByteView>(views).first(k);
  return {};
}

Status Unit::decode(const Step& step, const Where& w, int lane, std::span<const ByteView> payloads,
                    const Merge& merge) {
  Call c = call(step, w, lane);
  if (step.kind == StepKind::kStore) c.next_memory = memory(step, w, 1 - now_);
  const Status s = impl(*w.part.spec.codec).decode(c, payloads, merge, w.values);
  return s.ok() ? s : Status(s.code(), s.what(), culprit(step, w, payloads));
}

// Whose payload does not pass by itself. One of this rank's own is its own fault; where all pass, nobody is named.
Rank Unit::culprit(const Step& step, const Where& w, std::span<const ByteView> payloads) const {
  const Phase& phase = w.part.spec.codec->phases[step.phase];
  const Settings& settings = settings_[static_cast<std::size_t>(step.part)];
  std::size_t k = 0;
  for (const int f : list(step.frames))
    for (const Rank r : list(frames_[static_cast<std::size_t>(f)].makers)) {
      if (k == payloads.size()) return Status::kNoPeer;  // added up before: each passed by itself
      if (!phase.check(settings, w.n, payloads[k++]).ok()) return r;
    }
  return step.frames.count == 1 ? maker(list(step.frames)[0]) : Status::kNoPeer;
}

}  // namespace tithe::engine
