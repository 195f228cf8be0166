// SPDX-License-Identifier: Apache-2.0
// The memory of a unit; the headers, seals and checks of its frames; and the inputs of codec calls. Each failure names
// the rank that caused it.
#include "engine/program/unit_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/finite.h"
#include "base/rng.h"
#include "feedback/residual_store.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

// The number of a part's random draws. It depends on the first tensor's key and on the part's offset in that tensor,
// not on the bucket.
std::uint32_t draw_number(std::string_view key, std::size_t offset) {
  std::uint64_t h = mix64(offset + 1);
  for (const char c : key) h = mix64(h ^ static_cast<unsigned char>(c));
  return static_cast<std::uint32_t>(h);
}

std::vector<feedback::ValueRange> slices(std::span<const TensorLayout> tensors) {
  std::vector<feedback::ValueRange> out;
  for (const TensorLayout& t : tensors) out.push_back(t.slice());
  return out;
}

}  // namespace

const PartRunner& runner_of(const Codec& codec) {
  static const HostPart host;
  return codec.traits.uncompressed ? uncompressed_part() : host;
}

std::vector<feedback::FeedbackPart> feedback_parts(const Plan& plan, const Program& program, Rank me) {
  std::vector<feedback::FeedbackPart> out;
  const bool gathers = plan.kind == RoundKind::kAllGather;
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    out.push_back({{plan.parts[p].first, plan.parts[p].n},
                   plan.parts[p].spec,
                   program.parts[p].starts,
                   plan.parts[p].inside,
                   gathers ? std::optional(me) : std::nullopt});
  return out;
}

UnitState::UnitState(const Member& of, std::vector<TensorLayout> layout, Plan its_plan,
                     std::span<const double> ratios, std::span<const feedback::StateKinds> incoming)
    : member(of),
      tensors(std::move(layout)),
      plan(std::move(its_plan)),
      plan_hash(plan.hash(member.world, member.hosts, member.servers)),
      round_hash(plan_hash),
      program(compile(plan, member.place(), ratios, member.tagging, member.makers.get(),
                      may_be_copied(tensors, plan))),
      divide(plan.kind == RoundKind::kAllGather ? 1.0F : member.divide),
      frames(program, member.tagging.trailer()),
      part_values(tensors, plan, program,
                  member.force_reference || !this_machine().simd ? kReferenceConversions : kSimdConversions),
      feedback(slices(tensors), feedback_parts(plan, program, member.me), incoming),
      chunks(static_cast<std::size_t>(program.chunks)) {
  for (const Part& p : plan.parts) {
    const auto t = std::find_if(tensors.begin(), tensors.end(),
                                [&](const TensorLayout& l) { return p.first < l.first + l.n; });
    draws.push_back(draw_number(t->key, p.first - t->first));
    const auto coded = [&](const Spec& spec) {
      const Codec& codec = *spec.codec;
      return PartCodec{.impl = member.force_reference ? &codec.reference() : &codec.best(this_machine()),
                       .id = id_of(codec),
                       .settings = spec.settings,
                       .runner = &runner_of(codec)};
    };
    between.push_back(coded(p.spec));
    inside.push_back(p.inside ? coded(*p.inside) : PartCodec{});
  }
  for (int lane = 0; lane < member.workers; ++lane) {
    scratch.push_back(make_arena(program.scratch_bytes));
    views.emplace_back(std::max<std::size_t>(program.max_views, 1));
  }
}

StepContext::StepContext(UnitState& of, const Step& s, int its_lane)
    : unit(of),
      step(s),
      lane(its_lane),
      is_inside(s.stage == Stage::kInside),
      layout(of.program.parts[static_cast<std::size_t>(s.part)]),
      codec((is_inside ? of.inside : of.between)[static_cast<std::size_t>(s.part)]),
      part(*codec.runner),
      law(rule_of(is_inside ? Law::kDecode : layout.laws[s.phase])),
      begin(s.chunk == kWholePart ? 0 : s.chunk),
      end(s.chunk == kWholePart ? layout.chunks : begin + 1),
      first(layout.at(begin)),
      n(layout.at(end) - first),
      chunk(of.chunks[static_cast<std::size_t>(layout.first_chunk) + static_cast<std::size_t>(begin)]),
      last_phase(is_inside || std::size_t{s.phase} + 1 == layout.laws.size()) {}

// ---- Frames

FrameHeader StepContext::header(const FrameBody& body) const {
  return {.codec = codec.id,
          .run = unit.member.run,
          .round = unit.round,
          .tensor = unit.first_part + static_cast<std::uint32_t>(step.part),
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .flags = body.flags,
          .source = static_cast<std::uint16_t>(unit.member.me),
          .parts = body.parts,
          .values = n,
          .payload_bytes = body.bytes,
          .plan = unit.round_hash,
          .checksum = unit.member.tagging.checksum};
}

// Seals the frame whose payload is in the step's slot. If merging has computed the checksum, the payload is not read
// again.
Status StepContext::seal(const FrameBody& body) const {
  const FrameHeader h = header(body);
  const Bytes frame = unit.frames.memory(step.slot);
  Tags* const tags = unit.member.tags.get();
  const auto known = body.flags == 0 && !step.direct ? chunk.checksum : std::nullopt;
  if (known)
    TITHE_TRY(tags == nullptr ? seal_frame(h, frame, *known)
                              : seal_frame(h, frame, *known, tags->lane(lane), tags->next(), step.cover));
  else
    TITHE_TRY(tags == nullptr ? seal_frame(h, frame)
                              : seal_frame(h, frame, tags->lane(lane), tags->next(), step.cover));
  unit.frames[step.slot] = {body.flags, body.parts, step.makers, kFrameHeaderBytes + body.bytes};
  return {};
}

void StepContext::keep_own(const Encoded& done) const {
  chunk.own_bytes = done.bytes;
  chunk.present = true;
  unit.frames[step.own_slot] = {.bytes = kFrameHeaderBytes + done.bytes};
}

// Validates checksum and tag; the number, which must be new; the source, which must be the expected maker; and the
// header, which must match this step. Each failure names the rank that must have caused it.
Status StepContext::check(const EachPiece* each) const {
  const Member& member = unit.member;
  Frames& frames = unit.frames;
  Tagger* const tagger = member.tags == nullptr ? nullptr : &member.tags->lane(lane);
  const Result<ParsedFrame> parsed = parse_frame(
      frames.whole(step.slot),
      Reading{.tagger = tagger, .least = step.cover, .checksum = member.tagging.checksum, .each = each});
  // If strangers can send, the source in a frame without a valid tag means nothing.
  if (!parsed.ok()) return blame(parsed.status(), member.strangers ? parsed.status().peer() : step.peer);
  const Rank sender = member.strangers ? Status::kNoPeer : step.peer;
  if (member.tags != nullptr && !frames.take_number(step.slot, parsed->number))
    return {Code::kCorrupt, "frame: duplicate: its number was used in an earlier round", sender};
  const FrameHeader& h = parsed->header;
  const Rank maker = unit.program.indices[step.makers.first];
  if (h.source != maker)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: its header names rank {} as the sender, expected rank {}",
                        step.peer, h.source, maker),
            sender};
  if (h.plan != unit.round_hash && unit.round_hash != unit.plan_hash && h.run == member.run)
    return {Code::kMismatch,
            fmt::format("rank {} has another ratio in this round: report the same evaluations and learning "
                        "rates on all ranks",
                        h.source),
            h.source};
  if (Status wrong = tithe::check_frame(h, header(), frames.room(step.slot).size()); !wrong.ok()) {
    // A tagged frame in a wrong place is a valid frame that was replayed in another place.
    const bool moved = member.tags != nullptr && wrong.code() == Code::kCorrupt;
    return moved ? Status(wrong.code(), wrong.what()) : wrong;
  }
  const bool odd = (h.flags == kFlagConcat && !law.joins) || (h.flags == kFlagEmpty && !law.one_leads) ||
                   (law.joins && h.flags != kFlagNonFinite && h.parts != step.makers.count);
  if (odd)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: flags {} with {} parts under the {} law", h.source, h.flags,
                        h.parts, name(law.law)),
            maker};
  frames[step.slot] = {h.flags, h.parts, step.makers, kFrameHeaderBytes + parsed->payload.size()};
  return {};
}

Status StepContext::check_frame(int frame, const EachPiece* each) const {
  const int check = unit.program.check_of[static_cast<std::size_t>(frame)];
  return StepContext(unit, unit.program.checks[static_cast<std::size_t>(check)], lane).check(each);
}

Status StepContext::check_frames(std::span<const int> frames) const {
  for (const int f : frames)
    if (unchecked(f)) TITHE_TRY(check_frame(f));
  return {};
}

bool StepContext::meets_nonfinite(std::span<const int> frames) const {
  for (const int f : frames)
    if ((unit.frames[f].flags & kFlagNonFinite) != 0) chunk.poisoned = true;
  return chunk.poisoned;
}

// ---- Codecs

Call StepContext::call() const {
  const Member& member = unit.member;
  return {.settings = codec.settings,
          .seed = mix64(member.seed ^ mix64(static_cast<std::uint64_t>(member.me) + 1)),
          .shared_seed = member.seed,
          .round = unit.round,
          .tensor = unit.draws[static_cast<std::size_t>(step.part)],
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .context = chunk.context,
          .scratch = {unit.scratch[static_cast<std::size_t>(lane)].get(), unit.program.scratch_bytes},
          .memory = is_inside ? ByteView{} : unit.feedback.memory(step.part, step.chunk)};
}

Status StepContext::sound(int frame) const {
  return blame(codec.impl->check(call(), n, unit.frames.payload(frame)), unit.frames.maker(frame));
}

// Finds the rank whose payload fails its check. If the frame has one payload, its maker is named. If all payloads
// pass, no rank is named.
Rank StepContext::culprit(PayloadViews payloads) const {
  std::size_t k = 0;
  for (const int f : frames())
    for (const Rank r : unit.frames.makers(f)) {
      // The payloads were added before: each has passed its check.
      if (k == payloads.size()) return Status::kNoPeer;
      if (!codec.impl->check(call(), n, payloads[k++]).ok()) return r;
    }
  return frames().size() == 1 ? unit.frames.maker(frames()[0]) : Status::kNoPeer;
}

void StepContext::see_largest(float largest) const {
  if (largest <= feedback::kMaxResidual) return;
  unit.excessive = true;
  if (!is_finite(largest)) chunk.poisoned = true;
}

}  // namespace tithe::engine
