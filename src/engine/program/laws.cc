// SPDX-License-Identifier: Apache-2.0
// The laws, a class each. A payload of another rank passes its check before anything is added to it, so a combined
// payload that leaves this rank never carries the damage of another rank.
#include "engine/program/laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "engine/program/unit_state.h"

namespace tithe::engine {
namespace {

Result<FrameBody> encode_values(const StepContext& w) {
  if (!w.leads()) return FrameBody{.flags = kFlagEmpty};
  const Result<Encoded> done = w.part.encode(w, w.unit.frames.room(w.step.slot));
  if (!done.ok()) return done.status();
  return done->finite ? FrameBody{.bytes = done->bytes} : FrameBody{.flags = kFlagNonFinite};
}

// The payloads of all frames, in the order of the graph.
Result<PayloadViews> all_payloads(const StepContext& w) {
  const Frames& frames = w.unit.frames;
  std::vector<ByteView>& views = w.unit.views[static_cast<std::size_t>(w.lane)];
  std::size_t k = 0;
  for (const int f : w.frames()) {
    if (k + frames[f].parts > views.size())
      return Status(Code::kCorrupt, "more payloads than ranks", frames.maker(f));
    TITHE_TRY(split_parts(frames.parsed(f), std::span(views).subspan(k)));
    k += frames[f].parts;
  }
  return PayloadViews(views).first(k);
}

PayloadViews one_payload(const StepContext& w, ByteView payload) {
  std::vector<ByteView>& views = w.unit.views[static_cast<std::size_t>(w.lane)];
  views[0] = payload;
  return PayloadViews(views).first(1);
}

class DecodeRule final : public LawRule {
 public:
  using LawRule::LawRule;
  Status merge(const StepContext& w) const override {
    const Result<PayloadViews> payloads = all_payloads(w);
    return payloads.ok() ? w.part.decode(w, *payloads) : payloads.status();
  }
  Result<PayloadViews> result_of(const StepContext& w) const override { return all_payloads(w); }
  Result<FrameBody> encode_merged(const StepContext& w) const override { return encode_values(w); }
};

// Laws sum and max: the codec combines two payloads into one (Impl::combine).
class ArrayRule final : public LawRule {
 public:
  using LawRule::LawRule;
  // Adds in the order of ranks, with this rank in its place, so a sum does not depend on the rank that computes it.
  // Payloads of lower ranks are added to the first of them, in its received frame.
  Status merge(const StepContext& w) const override {
    const Bytes acc = w.unit.frames.room(w.step.slot).first(w.chunk.own_bytes);
    const std::span<const int> frames = w.frames();
    const auto lower = static_cast<std::size_t>(w.step.before);
    float* const rounding = residual_out(w);
    std::size_t after = frames.size();
    if (lower > 1) {
      TITHE_TRY(w.sound(frames[0]));
      const Bytes sum = w.unit.frames.payload(frames[0]);
      for (const int f : frames.subspan(1, lower - 1)) {
        TITHE_TRY(combine(w, sum, f, --after, rounding));
        if (w.chunk.poisoned) return {};  // an intermediate sum is not a valid payload now
      }
      TITHE_TRY(combine(w, acc, frames[0], --after, rounding));
    }
    for (const int f : frames.subspan(lower > 1 ? lower : 0)) {
      if (w.chunk.poisoned) return {};
      TITHE_TRY(combine(w, acc, f, --after, rounding));
    }
    return {};
  }
  // If there are several arrays, combines them. All ranks compute the same rounding error, and only the rank with
  // contribution 0 keeps it. Without a slot to combine them in, decode() adds them.
  Result<PayloadViews> result_of(const StepContext& w) const override {
    const std::span<const int> frames = w.frames();
    const Bytes whole = w.unit.frames.payload(frames[0]);
    if (w.step.slot < 0 && frames.size() > 1) return all_payloads(w);
    if (w.step.slot >= 0 || !w.last_phase) TITHE_TRY(w.sound(frames[0]));
    if (w.step.slot < 0) return one_payload(w, whole);
    const Bytes room = w.unit.frames.room(w.step.slot);
    if (whole.size() > room.size())
      return Status(Code::kCorrupt, "payload longer than its bound", w.unit.frames.maker(frames[0]));
    const Bytes acc = room.first(whole.size());
    if (!whole.empty()) std::memcpy(acc.data(), whole.data(), whole.size());
    std::size_t after = frames.size() - 1;
    for (const int f : frames.subspan(1))
      TITHE_TRY(combine(w, acc, f, --after,
                        w.layout.contribution(w.step.chunk).at == 0 ? residual_out(w) : nullptr));
    return one_payload(w, acc);
  }

 private:
  // Only the last phase writes the residual.
  static float* residual_out(const StepContext& w) {
    return w.last_phase ? w.unit.feedback.residual_out(w.step.part, w.step.chunk) : nullptr;
  }
  // Adds a frame to acc; `after` more frames follow. Poisons the chunk if a sum is not finite.
  static Status combine(const StepContext& w, Bytes acc, int frame, std::size_t after, float* rounding) {
    const Frames& frames = w.unit.frames;
    Call c = w.call();
    // Each payload that was already added counts as one more rank.
    c.ranks = static_cast<std::uint32_t>(
        static_cast<std::size_t>(w.layout.contribution(w.step.chunk).payloads) - after);
    const Result<Combined> done = w.codec.impl->combine(c, w.n, acc, frames.payload(frame), rounding);
    if (!done.ok()) return blame(done.status(), frames.maker(frame));
    if (!done->finite) w.chunk.poisoned = true;
    return {};
  }
};

class ConcatRule final : public LawRule {
 public:
  using LawRule::LawRule;
  Status merge(const StepContext&) const override { return {}; }  // encode_merged() joins the payloads
  Result<PayloadViews> result_of(const StepContext& w) const override { return all_payloads(w); }
  // Joins the own payload and the merged ones, in the order of the graph. The frame starts with the length of each
  // payload.
  Result<FrameBody> encode_merged(const StepContext& w) const override {
    const Frames& frames = w.unit.frames;
    const Bytes room = frames.room(w.step.slot);
    std::size_t parts = 1;
    for (const int f : w.frames()) parts += frames[f].parts;
    if (parts > kMaxParts)
      return Status(Code::kUnsupported,
                    fmt::format("{} payloads in one frame, at most {}", parts, kMaxParts));
    std::size_t at = 8 * parts, k = 0;
    const auto append = [&](ByteView p) {
      if (at + p.size() > room.size()) return false;
      wire::put(room.data() + 8 * k++, std::uint64_t{p.size()});
      if (!p.empty()) std::memcpy(room.data() + at, p.data(), p.size());
      at += p.size();
      return true;
    };
    bool fits = append(frames.payload(w.step.own_slot));
    ByteView pieces[kMaxParts];
    for (const int f : w.frames()) {
      TITHE_TRY(split_parts(frames.parsed(f), pieces));
      for (std::size_t i = 0; i < frames[f].parts; ++i) fits = fits && append(pieces[i]);
    }
    if (!fits)
      return Status(Code::kCorrupt, "joined payloads are longer than the payloads of their ranks can be");
    return FrameBody{.flags = kFlagConcat, .parts = static_cast<std::uint16_t>(parts), .bytes = at};
  }
};

class LeaderRule final : public LawRule {
 public:
  using LawRule::LawRule;
  Status merge(const StepContext& w) const override {
    const Frames& frames = w.unit.frames;
    for (const int f : w.frames()) {
      if (frames[f].flags == kFlagEmpty) continue;
      const Rank maker = frames.maker(f);
      if (w.chunk.present)
        return {Code::kCorrupt, fmt::format("rank {} sent a second leader's payload", maker), maker};
      TITHE_TRY(w.sound(f));  // from here on the frame names this rank as its source
      const ByteView p = frames.payload(f);
      if (!p.empty()) std::memcpy(frames.room(w.step.slot).data(), p.data(), p.size());
      w.chunk.own_bytes = p.size();
      w.chunk.present = true;
    }
    return {};
  }
  Result<PayloadViews> result_of(const StepContext& w) const override {
    const Frames& frames = w.unit.frames;
    int source = w.frames()[0];
    for (const int f : w.frames())
      if (frames[f].flags != kFlagEmpty) source = f;
    if (frames[source].flags == kFlagEmpty)
      return Status(Code::kCorrupt, "no rank sent the leader's payload", frames.maker(source));
    TITHE_TRY(w.sound(source));
    return one_payload(w, frames.payload(source));
  }
};

constexpr DecodeRule kDecodeRule({.law = Law::kDecode,
                                  .encode_text = "a payload of this rank's current values of chunk c",
                                  .merge_text = "adds the decoded frames to this rank's values",
                                  .store_text = "adds the decoded frames into the result",
                                  .last = true});
constexpr ArrayRule kSumRule({.law = Law::kSum,
                              .encode_text = "the own payload plus all merged ones, as one array",
                              .merge_text = "adds the frames' arrays to the own payload",
                              .store_text = "adds the arrays, decodes once",
                              .own_first = true,
                              .adds = true,
                              .last = true,
                              .before = true});
constexpr ArrayRule kMaxRule(
    {.law = Law::kMax,
     .encode_text = "the maxima of the own payload and all merged ones, as one array",
     .merge_text = "takes the maxima of the frames' arrays and the own payload",
     .store_text = "takes the maxima of the arrays",
     .own_first = true,
     .adds = true,
     .before = true});
constexpr ConcatRule kConcatRule({.law = Law::kConcat,
                                  .encode_text = "the own payload and all merged ones, one after the other",
                                  .merge_text = "keeps the frames' payloads",
                                  .store_text = "decodes all payloads in one pass",
                                  .own_first = true,
                                  .joins = true,
                                  .last = true});
constexpr LeaderRule kLeaderRule({.law = Law::kLeader,
                                  .encode_text = "the leader's payload, or an empty frame",
                                  .merge_text = "keeps the one payload that is not empty",
                                  .store_text = "takes the one payload that is not empty",
                                  .own_first = true,
                                  .one_leads = true,
                                  .before = true});

}  // namespace

Result<FrameBody> LawRule::encode(const StepContext& w) const {
  return w.step.direct ? encode_values(w) : encode_merged(w);
}

// The own payload, into which the frames were merged.
Result<FrameBody> LawRule::encode_merged(const StepContext& w) const {
  FrameBody made{.bytes = w.chunk.own_bytes};
  if (!w.chunk.present) made.flags = kFlagEmpty;
  return made;
}

const LawRule& rule_of(Law law) {
  static constexpr const LawRule* kRules[] = {&kDecodeRule, &kSumRule, &kMaxRule, &kConcatRule, &kLeaderRule};
  return *kRules[static_cast<std::size_t>(law)];
}

std::string laws_as_text() {
  std::string out = "| law | encode(c) | merge(c, F) | store(c, F) |\n|---|---|---|---|\n";
  for (const Law law : kAllLaws) {
    const LawTraits& traits = rule_of(law);
    fmt::format_to(std::back_inserter(out), "| {} | {} | {} | {} |\n", name(law), traits.encode_text,
                   traits.merge_text, traits.store_text);
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
    if (!(last ? rule_of(*law).last : rule_of(*law).before))
      return Status(Code::kUnsupported,
                    fmt::format("{}: phase '{}' is the {} and combines by {}", spec.codec->name, phase.name,
                                last ? "last" : "context of another", name(*law)));
    laws.push_back(*law);
  }
  return laws;
}

}  // namespace tithe::engine
