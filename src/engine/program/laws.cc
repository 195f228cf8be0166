// SPDX-License-Identifier: Apache-2.0
// The table of laws, and the functions in its rows.
#include "engine/program/laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "engine/program/unit.h"

namespace tithe::engine {

const LawRow& row_of(Law law) {
  static constexpr LawRow kRows[] = {
      {.law = Law::kDecode,
       .encode = "a payload of all that this rank holds of chunk c",
       .merge = "adds the decoded frames to the values held",
       .store = "adds the decoded frames into the result",
       .own_first = false,
       .joins = false,
       .adds = false,
       .one_leads = false,
       .last = true,
       .before = false,
       .encode_merged = &Unit::encode_values,
       .merge_frames = &Unit::merge_values,
       .result_of = &Unit::all_payloads},
      {.law = Law::kSum,
       .encode = "the own payload plus all merged ones, as one array",
       .merge = "adds the frames' arrays to the own payload",
       .store = "adds the arrays, decodes once",
       .own_first = true,
       .joins = false,
       .adds = true,
       .one_leads = false,
       .last = true,
       .before = true,
       .encode_merged = &Unit::encode_own,
       .merge_frames = &Unit::merge_arrays,
       .result_of = &Unit::one_array},
      {.law = Law::kMax,
       .encode = "the maxima of the own payload and all merged ones, as one array",
       .merge = "takes the maxima of the frames' arrays and the own payload",
       .store = "takes the maxima of the arrays",
       .own_first = true,
       .joins = false,
       .adds = true,
       .one_leads = false,
       .last = false,
       .before = true,
       .encode_merged = &Unit::encode_own,
       .merge_frames = &Unit::merge_arrays,
       .result_of = &Unit::one_array},
      {.law = Law::kConcat,
       .encode = "the own payload and all merged ones, one after the other",
       .merge = "keeps the frames' payloads",
       .store = "decodes all payloads in one pass",
       .own_first = true,
       .joins = true,
       .adds = false,
       .one_leads = false,
       .last = true,
       .before = false,
       .encode_merged = &Unit::encode_joined,
       .merge_frames = &Unit::merge_nothing,
       .result_of = &Unit::all_payloads},
      {.law = Law::kLeader,
       .encode = "the leader's payload, or an empty frame",
       .merge = "keeps the one payload that is not empty",
       .store = "takes the one payload that is not empty",
       .own_first = true,
       .joins = false,
       .adds = false,
       .one_leads = true,
       .last = false,
       .before = true,
       .encode_merged = &Unit::encode_own,
       .merge_frames = &Unit::merge_leader,
       .result_of = &Unit::leaders_payload},
  };
  static_assert([] {
    for (std::size_t i = 0; i < std::size(kRows); ++i)
      if (kRows[i].law != kAllLaws[i] || static_cast<std::size_t>(kAllLaws[i]) != i) return false;
    return std::size(kRows) == std::size(kAllLaws);
  }());
  return kRows[static_cast<std::size_t>(law)];
}

std::string laws_as_text() {
  std::string out = "| law | encode(c) | merge(c, F) | store(c, F) |\n|---|---|---|---|\n";
  for (const Law law : kAllLaws) {
    const LawRow& row = row_of(law);
    fmt::format_to(std::back_inserter(out), "| {} | {} | {} | {} |\n", name(law), row.encode, row.merge,
                   row.store);
  }
  return out;
}

Result<std::vector<Law>> choose_laws(const Spec& spec, const Strategy& strategy) {
  std::vector<Law> laws;
  const std::size_t phases = spec.codec->phases.size();
  for (std::size_t p = 0; p < phases; ++p) {
    const Phase& phase = spec.codec->phases[p];
    const auto law = std::find_if(strategy.laws.begin(), strategy.laws.end(), [&](Law l) {
      return std::find(phase.laws.begin(), phase.laws.end(), l) != phase.laws.end();
    });
    if (law == strategy.laws.end())
      return Status(Code::kInvalid, fmt::format("{} and {} share no law for phase '{}'", spec.codec->name,
                                                strategy.name, phase.name));
    const bool last = p + 1 == phases;
    if (!(last ? row_of(*law).last : row_of(*law).before))
      return Status(Code::kUnsupported,
                    fmt::format("{}: phase '{}' is the {} and combines by {}", spec.codec->name, phase.name,
                                last ? "last" : "context of another", name(*law)));
    laws.push_back(*law);
  }
  return laws;
}

// ---- encode(c), after merges

Result<FrameBody> Unit::encode_own(const Step&, const StepContext& w, int) {
  FrameBody made{.bytes = w.chunk.own_bytes};
  if (!w.chunk.present) made.flags = kFlagEmpty;
  return made;
}

// Joins the own payload and the merged ones, in the order of the graph. The frame starts with the length of each
// payload.
Result<FrameBody> Unit::encode_joined(const Step& step, const StepContext&, int) {
  const Bytes room = frames_.room(step.slot);
  std::size_t parts = 1;
  for (const int f : list(step.frames)) parts += frames_[f].parts;
  if (parts > kMaxParts)
    return Status(Code::kUnsupported, fmt::format("{} payloads in one frame, at most {}", parts, kMaxParts));
  std::size_t at = 8 * parts;
  std::size_t k = 0;
  const auto append = [&](ByteView p) {
    if (at + p.size() > room.size()) return false;
    wire::put(room.data() + 8 * k++, std::uint64_t{p.size()});
    if (!p.empty()) std::memcpy(room.data() + at, p.data(), p.size());
    at += p.size();
    return true;
  };
  bool fits = append(frames_.payload(step.own_slot));
  ByteView pieces[kMaxParts];
  for (const int f : list(step.frames)) {
    TITHE_TRY(split_parts(frames_.parsed(f), pieces));
    for (std::size_t i = 0; i < frames_[f].parts; ++i) fits = fits && append(pieces[i]);
  }
  if (!fits)
    return Status(Code::kCorrupt, "joined payloads are longer than the payloads of their ranks can be");
  return FrameBody{.flags = kFlagConcat, .parts = static_cast<std::uint16_t>(parts), .bytes = at};
}

// ---- merge(c, F)

Status Unit::merge_values(const Step& step, const StepContext& w, int lane) {
  std::span<const ByteView> payloads;
  TITHE_TRY(all_payloads(step, w, lane, payloads));
  if (on_device(step)) return decode_on_device(step, w, lane, payloads, true, 1.0F);
  TITHE_TRY(decode(step, w, lane, payloads, {.base = w.chunk.source}));
  w.chunk.source = w.values.data();
  return {};
}

// Adds in the order of ranks, with this rank in its place, so a sum does not depend on the rank that computes it.
// Payloads of lower ranks are added to the first of them, in its received frame.
Status Unit::merge_arrays(const Step& step, const StepContext& w, int lane) {
  const Bytes acc = frames_.room(step.slot).first(w.chunk.own_bytes);
  const std::span<const int> frames = list(step.frames);
  const auto before = static_cast<std::size_t>(step.before);
  std::size_t after = frames.size();
  if (before > 1) {
    TITHE_TRY(sound(step, w, lane, frames[0]));
    const Bytes lower = frames_.payload(frames[0]);
    for (const int f : frames.subspan(1, before - 1)) {
      TITHE_TRY(combine(step, w, lane, lower, f, --after, residual_out(step, w)));
      if (w.chunk.poisoned) return {};  // an intermediate sum is not a valid payload now
    }
    TITHE_TRY(combine(step, w, lane, acc, frames[0], --after, residual_out(step, w)));
  }
  for (const int f : frames.subspan(before > 1 ? before : 0)) {
    if (w.chunk.poisoned) return {};
    TITHE_TRY(combine(step, w, lane, acc, f, --after, residual_out(step, w)));
  }
  return {};
}

// Like merge_arrays(), if the own values are their payload. They are added into the first received frame, which then
// becomes the outgoing frame. The order of two operands does not change the bits of a sum. The work is done piece by
// piece: check the received frame if it is unchecked, add, and compute the checksum of the outgoing frame.
Status Unit::merge_onto(const Step& step, const StepContext& w, int lane) {
  const std::span<const int> frames = list(step.frames);
  const bool at_once = reads_at_once(w, frames[0]);
  const int check_of = program_.check_of[static_cast<std::size_t>(frames[0])];
  const std::span<const int> others = frames.subspan(at_once ? 1 : 0);
  TITHE_TRY(check_frames(others, lane));
  if (meets_nonfinite(others, w))
    return at_once ? check(program_.checks[static_cast<std::size_t>(check_of)], lane) : Status{};
  for (const int f : others) TITHE_TRY(sound(step, w, lane, f));

  const Bytes acc = frames_.payload(frames[0]);
  const auto before = static_cast<std::size_t>(step.before);
  const EncodeInput input = feedback_.view(step.part, step.chunk, w.chunk.source, w.last_phase);
  const Call c = call(step, w, lane);
  FrameHeader h = header(step, w);
  h.payload_bytes = acc.size();
  Sealing sealing(h, member_.tags == nullptr ? std::nullopt : std::optional(step.cover));
  Status status;
  alignas(64) std::array<std::uint8_t, kPieceBytes> room;
  const auto add = [&](std::size_t at, std::size_t bytes) {
    const Bytes sum = acc.subspan(at, bytes);
    const std::size_t first = at / sizeof(float), n = bytes / sizeof(float);
    const auto from = [&](auto* values) { return values == nullptr ? nullptr : values + first; };
    const Result<ByteView> own = own_piece(
        c, impl(step), {input.grad + first, from(input.residual), from(input.residual_out), n}, room);
    if (!own.ok()) status = own.status();
    const auto come = [&](ByteView in) {
      const Result<Combined> done = impl(step).combine(c, n, sum, in, nullptr);
      if (!done.ok()) status = done.status();
      if (done.ok() && !done->finite) w.chunk.poisoned = true;
    };
    for (std::size_t k = 0; k < frames.size() && status.ok(); ++k) {
      if (k > 0) come(frames_.payload(frames[k]).subspan(at, bytes));
      if (k + 1 == std::max<std::size_t>(before, 1)) come(*own);
    }
    sealing.add(sum);
  };
  if (at_once) {
    const EachPiece pieces = std::ref(add);
    TITHE_TRY(check(program_.checks[static_cast<std::size_t>(check_of)], lane, &pieces));
  } else {
    for (std::size_t at = 0; at < acc.size(); at += kPieceBytes)
      add(at, std::min(kPieceBytes, acc.size() - at));
  }
  if (!status.ok()) return Status(status.code(), status.what(), member_.me);
  w.chunk.own_bytes = acc.size();
  w.chunk.present = true;
  if (!w.chunk.poisoned) w.chunk.checksum = sealing.checksum();
  return {};
}

Status Unit::merge_leader(const Step& step, const StepContext& w, int lane) {
  for (const int f : list(step.frames)) {
    if (frames_[f].flags == kFlagEmpty) continue;
    const Rank maker = frames_.maker(f);
    if (w.chunk.present)
      return {Code::kCorrupt, fmt::format("rank {} sent a second leader's payload", maker), maker};
    TITHE_TRY(sound(step, w, lane, f));  // from here on the frame names this rank as its source
    const ByteView p = frames_.payload(f);
    if (!p.empty()) std::memcpy(frames_.room(step.slot).data(), p.data(), p.size());
    w.chunk.own_bytes = p.size();
    w.chunk.present = true;
  }
  return {};
}

// encode_joined() joins them.
Status Unit::merge_nothing(const Step&, const StepContext&, int) { return {}; }

// ---- store(c, F): the payloads of the result

// The payloads of all frames, in the order of the graph.
Status Unit::all_payloads(const Step& step, const StepContext&, int lane,
                          std::span<const ByteView>& payloads) {
  std::vector<ByteView>& views = views_[static_cast<std::size_t>(lane)];
  std::size_t k = 0;
  for (const int f : list(step.frames)) {
    if (k + frames_[f].parts > views.size())
      return {Code::kCorrupt, "more payloads than ranks", frames_.maker(f)};
    TITHE_TRY(split_parts(frames_.parsed(f), std::span(views).subspan(k)));
    k += frames_[f].parts;
  }
  payloads = std::span<const ByteView>(views).first(k);
  return {};
}

// If there are several arrays, combines them. All ranks compute the same rounding error, and only the rank with
// contribution 0 keeps it.
Status Unit::one_array(const Step& step, const StepContext& w, int lane,
                       std::span<const ByteView>& payloads) {
  const std::span<const int> frames = list(step.frames);
  // decode() adds them.
  if (step.slot < 0 && frames.size() > 1) return all_payloads(step, w, lane, payloads);
  ByteView whole = frames_.payload(frames[0]);
  if (step.slot < 0) {
    if (!w.last_phase) TITHE_TRY(sound(step, w, lane, frames[0]));
  } else {
    TITHE_TRY(sound(step, w, lane, frames[0]));  // must be valid before other payloads are added to it
    const Bytes room = frames_.room(step.slot);
    if (whole.size() > room.size())
      return {Code::kCorrupt, "payload longer than its bound", frames_.maker(frames[0])};
    const Bytes acc = room.first(whole.size());
    if (!whole.empty()) std::memcpy(acc.data(), whole.data(), whole.size());
    std::size_t after = frames.size() - 1;
    for (const int f : frames.subspan(1))
      TITHE_TRY(
          combine(step, w, lane, acc, f, --after, w.contribution.at == 0 ? residual_out(step, w) : nullptr));
    whole = acc;
  }
  payloads = only(whole, lane);
  return {};
}

Status Unit::leaders_payload(const Step& step, const StepContext& w, int lane,
                             std::span<const ByteView>& payloads) {
  const std::span<const int> frames = list(step.frames);
  int source = frames[0];
  for (const int f : frames)
    if (frames_[f].flags != kFlagEmpty) source = f;
  if (frames_[source].flags == kFlagEmpty)
    return {Code::kCorrupt, "no rank sent the leader's payload", frames_.maker(source)};
  TITHE_TRY(sound(step, w, lane, source));
  payloads = only(frames_.payload(source), lane);
  return {};
}

}  // namespace tithe::engine
