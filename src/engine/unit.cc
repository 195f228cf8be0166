// SPDX-License-Identifier: Apache-2.0
#include "engine/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/rng.h"
#include "engine/convert.h"
#include "engine/feedback.h"

namespace tithe::engine {
namespace {

std::uint32_t draw_number(std::string_view key, std::size_t offset) {
  std::uint64_t h = mix64(offset + 1);
  for (const char c : key) h = mix64(h ^ static_cast<unsigned char>(c));
  return static_cast<std::uint32_t>(h);
}

}  // namespace

Arena make_arena(std::size_t bytes) {
  return Arena(
      static_cast<std::uint8_t*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t{64})));
}

Unit::Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::uint32_t first_part)
    : member_(member),
      tensors_(std::move(tensors)),
      plan_(std::move(plan)),
      plan_hash_(plan_.hash(member.world)),
      first_part_(first_part),
      program_(compile(plan_, member.me, member.world)),
      arena_(make_arena(program_.arena_bytes)),
      frames_(program_.slots.size()),
      chunks_(static_cast<std::size_t>(program_.chunks)),
      bucket_(tensors_.size()),
      flat_(plan_.parts.size()) {
  for (const TensorLayout& t : tensors_) values_ += t.n;
  bool residuals = false;
  bool velocities = false;
  for (const Part& p : plan_.parts) {
    const auto t = std::find_if(tensors_.begin(), tensors_.end(),
                                [&](const TensorLayout& l) { return p.first < l.first + l.n; });
    draws_.push_back(draw_number(t->key, p.first - t->first));
    carries_.push_back(keeps_residual(p.spec));
    residuals = residuals || keeps_residual(p.spec);
    velocities = velocities || keeps_velocity(p.spec);
  }
  for (int k = 0; k < 2; ++k) {
    if (residuals) residual_[k].assign(values_, 0.0F);
    if (velocities) velocity_[k].assign(values_, 0.0F);
  }
  for (int lane = 0; lane < member_.workers; ++lane) {
    scratch_.push_back(make_arena(program_.scratch_bytes));
    views_.emplace_back(program_.most_views);
  }
}

// ---- A round

template <typename Body>
void Unit::each_tensor(const Part& p, Body body) {
  for (std::size_t k = 0; k < tensors_.size(); ++k) {
    const TensorLayout& l = tensors_[k];
    const std::size_t from = std::max(p.first, l.first);
    const std::size_t to = std::min(p.first + p.n, l.first + l.n);
    if (from < to) body(bucket_[k], l, from, to);
  }
}

void Unit::begin(std::span<const Tensor> bucket, std::uint32_t round) {
  for (std::size_t k = 0; k < tensors_.size(); ++k) bucket_[k] = bucket[tensors_[k].place];
  round_ = round;
  finite_ = true;
  for (std::size_t i = 0; i < plan_.parts.size(); ++i) {
    const Part& p = plan_.parts[i];
    float* first = nullptr;
    bool in_place = true;
    each_tensor(p, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t) {
      float* at = static_cast<float*>(t.data) + (from - l.first);
      if (first == nullptr) first = at;
      in_place = in_place && t.dtype == DType::kF32 && at == first + (from - p.first);
    });
    if (!in_place) staging_.resize(values_);
    flat_[i] = in_place ? first : staging_.data() + p.first;
  }
  for (ChunkState& c : chunks_) c = {};
}

void Unit::end() {
  if (finite_) return;
  for (const Tensor& t : bucket_) {
    if (t.dtype == DType::kF32) {
      std::fill_n(static_cast<float*>(t.data), t.n, std::numeric_limits<float>::quiet_NaN());
    } else {
      const std::uint16_t nan = t.dtype == DType::kBF16 ? 0x7fc0 : 0x7e00;
      std::fill_n(static_cast<std::uint16_t*>(t.data), t.n, nan);
    }
  }
}

void Unit::commit(bool keep) {
  if (keep) now_ = 1 - now_;
}

void Unit::adopted(const TensorLayout& t) {
  const std::span<const float> r = residual(t);
  if (std::all_of(r.begin(), r.end(), [](float v) { return v == 0.0F; })) return;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p)
    if (plan_.parts[p].first < t.first + t.n && t.first < plan_.parts[p].first + plan_.parts[p].n)
      carries_[p] = true;
}

ByteView Unit::outgoing(const Step& step) const {
  const Slot& s = program_.slots[static_cast<std::size_t>(step.slot)];
  return {arena_.get() + s.offset, frames_[static_cast<std::size_t>(step.slot)].bytes};
}

Bytes Unit::incoming(const Step& step) { return slot(step.slot); }

void Unit::received(const Step& step, std::size_t bytes) { state(step.slot).bytes = bytes; }

// ---- Steps

Unit::Where Unit::where(const Step& step) {
  const auto p = static_cast<std::size_t>(step.part);
  const PartLayout& layout = program_.parts[p];
  return {plan_.parts[p],
          layout,
          layout.laws[step.phase],
          chunks_[static_cast<std::size_t>(layout.first_chunk + step.chunk)],
          plan_.parts[p].first + layout.at(step.chunk),
          {flat_[p] + layout.at(step.chunk), layout.size(step.chunk)},
          layout.size(step.chunk)};
}

Status Unit::run(const Step& step, int lane) {
  switch (step.kind) {
    case StepKind::kLoad:
      load(step.part);
      return {};
    case StepKind::kUnload:
      unload(step.part);
      return {};
    case StepKind::kOwn:
      return own(step, lane);
    case StepKind::kEncode:
      return encode(step, lane);
    case StepKind::kCheck:
      return check(step);
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

void Unit::load(int part) {
  const Part& p = plan_.parts[static_cast<std::size_t>(part)];
  const PartLayout& layout = program_.parts[static_cast<std::size_t>(part)];
  float* flat = flat_[static_cast<std::size_t>(part)];
  if (staged(static_cast<std::size_t>(part)))
    each_tensor(p, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        if (t.dtype == DType::kF32) {
          flat[i - p.first] = static_cast<const float*>(t.data)[i - l.first];
        } else {
          const auto h = static_cast<const std::uint16_t*>(t.data)[i - l.first];
          flat[i - p.first] = t.dtype == DType::kBF16 ? from_bf16(h) : from_fp16(h);
        }
      }
    });

  const std::span<float> grad(flat, p.n);
  const FeedbackPolicy& policy = p.spec.feedback;
  const float s = clip_factor(grad, policy.clip);
  const float* source = flat;
  if (keeps_velocity(p.spec)) {
    apply_momentum(policy, s, grad, velocity_[now_].data() + p.first, velocity_[1 - now_].data() + p.first);
    if (!policy.nesterov) source = velocity_[1 - now_].data() + p.first;
  } else if (s != 1.0F) {
    for (float& v : grad) v *= s;
  }
  for (Chunk c = 0; c < layout.chunks; ++c)
    chunks_[static_cast<std::size_t>(layout.first_chunk + c)].source = source + layout.at(c);
}

void Unit::unload(int part) {
  if (!staged(static_cast<std::size_t>(part))) return;
  const Part& p = plan_.parts[static_cast<std::size_t>(part)];
  const float* flat = flat_[static_cast<std::size_t>(part)];
  each_tensor(p, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const float v = flat[i - p.first];
      if (t.dtype == DType::kF32)
        static_cast<float*>(t.data)[i - l.first] = v;
      else
        static_cast<std::uint16_t*>(t.data)[i - l.first] = t.dtype == DType::kBF16 ? to_bf16(v) : to_fp16(v);
    }
  });
}

// Only the last phase settles what is left.
float* Unit::left(const Step& step, const Where& w) {
  if (!carries_[static_cast<std::size_t>(step.part)] || !last_phase(step, w)) return nullptr;
  return residual_[1 - now_].data() + w.offset;
}

Call Unit::call(const Step& step, const Where& w, int lane) {
  const auto part = static_cast<std::size_t>(step.part);
  return {.settings = w.part.spec.settings,
          .seed = mix64(member_.seed ^ mix64(static_cast<std::uint64_t>(member_.me) + 1)),
          .shared_seed = member_.seed,
          .round = round_,
          .tensor = draws_[part],
          .chunk = static_cast<std::uint16_t>(step.chunk),
          .phase = step.phase,
          .context = w.chunk.context,
          .scratch = {scratch_[static_cast<std::size_t>(lane)].get(), program_.scratch_bytes}};
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
          .plan = plan_hash_};
}

Result<Encoded> Unit::encode_into(const Step& step, const Where& w, int lane, Bytes out) {
  const auto part = static_cast<std::size_t>(step.part);
  const Carry carry{w.chunk.source, carries_[part] ? residual_[now_].data() + w.offset : nullptr,
                    left(step, w), w.n};
  Result<Encoded> done = impl(*w.part.spec.codec).encode(call(step, w, lane), carry, out);
  if (!done.ok()) return Status(done.status().code(), done.status().what(), member_.me);
  if (!done->finite) {
    w.chunk.poisoned = true;
  } else if (w.part.spec.feedback.mask && last_phase(step, w)) {
    mask_velocity(out.first(done->bytes), velocity_[1 - now_].data() + w.offset);
  }
  return done;
}

Status Unit::own(const Step& step, int lane) {
  const Where w = where(step);
  if (w.chunk.poisoned || !leads(w)) return {};
  const Result<Encoded> done = encode_into(step, w, lane, slot(step.own_slot).subspan(kFrameHeaderBytes));
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
      const Result<Encoded> done = encode_into(step, w, lane, frame.subspan(kFrameHeaderBytes));
      if (!done.ok()) return done.status();
      bytes = done->finite ? done->bytes : 0;
      flags = done->finite ? 0 : kFlagNonFinite;
    } else {
      flags = kFlagEmpty;
    }
  } else if (w.law == Law::kConcat) {
    TITHE_TRY(join(step, frame, bytes, parts));
    flags = kFlagConcat;
  } else {
    bytes = w.chunk.own_bytes;
    flags = w.chunk.present ? 0 : kFlagEmpty;
  }
  FrameHeader h = header(step, w);
  h.flags = flags;
  h.parts = parts;
  h.payload_bytes = bytes;
  TITHE_TRY(seal_frame(h, frame));
  state(step.slot) = {flags, parts, h.source, kFrameHeaderBytes + bytes};
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

Status Unit::check(const Step& step) {
  const Where w = where(step);
  const ByteView bytes = ByteView(slot(step.slot)).first(state(step.slot).bytes);
  const Result<ParsedFrame> parsed = parse_frame(bytes);
  if (!parsed.ok()) return Status(parsed.status().code(), parsed.status().what(), step.peer);
  const FrameHeader& h = parsed->header;
  TITHE_TRY(check_frame(h, header(step, w), slot(step.slot).size() - kFrameHeaderBytes));
  const bool odd = (h.flags == kFlagConcat && (w.law != Law::kConcat || h.parts > member_.world)) ||
                   (h.flags == kFlagEmpty && w.law != Law::kLeader) || h.source >= member_.world;
  if (odd)
    return {Code::kCorrupt,
            fmt::format("frame from rank {}: flags {} with {} parts under the {} law", h.source, h.flags,
                        h.parts, name(w.law)),
            step.peer};
  state(step.slot) = {h.flags, h.parts, h.source, bytes.size()};
  return {};
}

Status Unit::combine(const Step& step, const Where& w, Bytes acc, int frame, float* rounding) {
  const Phase& phase = w.part.spec.codec->phases[step.phase];
  const Status s = phase.combine(w.part.spec.settings, w.n, acc, payload(frame), rounding);
  return s.ok() ? s : Status(s.code(), s.what(), state(frame).source);
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
      for (const int f : list(step.frames)) TITHE_TRY(combine(step, w, acc, f, left(step, w)));
      return {};
    }
    case Law::kLeader:
      for (const int f : list(step.frames)) {
        if (state(f).flags == kFlagEmpty) continue;
        if (w.chunk.present)
          return {Code::kCorrupt, fmt::format("rank {} leads too", state(f).source), state(f).source};
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
  const Codec& codec = *w.part.spec.codec;
  std::span<const ByteView> payloads;
  ByteView whole;
  if (w.law == Law::kDecode || w.law == Law::kConcat) {
    TITHE_TRY(collect(step, lane, payloads));
  } else {
    int source = frames[0];
    if (w.law == Law::kLeader)
      for (const int f : frames)
        if (state(f).flags != kFlagEmpty) source = f;
    if (state(source).flags == kFlagEmpty) return {Code::kCorrupt, "no rank led", state(source).source};
    whole = payload(source);
    if (step.slot >= 0) {  // several: combined here, and one rank keeps the rounding that all make alike
      const Bytes acc = slot(step.slot).subspan(kFrameHeaderBytes);
      if (whole.size() > acc.size())
        return {Code::kCorrupt, "payload longer than its bound", state(source).source};
      if (!whole.empty()) std::memcpy(acc.data(), whole.data(), whole.size());
      for (const int f : frames.subspan(1))
        TITHE_TRY(combine(step, w, acc.first(whole.size()), f, member_.me == 0 ? left(step, w) : nullptr));
      whole = acc.first(whole.size());
    }
    payloads = {&whole, 1};
    if (!last_phase(step, w)) {
      const Status s = codec.phases[step.phase].check(w.part.spec.settings, w.n, whole);
      if (!s.ok()) return {s.code(), s.what(), state(source).source};
      w.chunk.context = whole;
      w.chunk.own_bytes = 0;
      w.chunk.present = false;
      return {};
    }
  }
  return decode(step, w, lane, payloads, {.divide = member_.divide});
}

// The payloads of a step's frames, in the order of the graph.
Status Unit::collect(const Step& step, int lane, std::span<const ByteView>& out) {
  std::vector<ByteView>& views = views_[static_cast<std::size_t>(lane)];
  std::size_t k = 0;
  for (const int f : list(step.frames)) {
    if (k + state(f).parts > views.size())
      return {Code::kCorrupt, "more payloads than ranks", state(f).source};
    TITHE_TRY(split_parts(parsed(f), std::span(views).subspan(k)));
    k += state(f).parts;
  }
  out = std::span<const ByteView>(views).first(k);
  return {};
}

Status Unit::decode(const Step& step, const Where& w, int lane, std::span<const ByteView> payloads,
                    const Merge& merge) {
  const Status s = impl(*w.part.spec.codec).decode(call(step, w, lane), payloads, merge, w.values);
  if (s.ok()) return s;
  const int source = step.frames.count == 1 ? int{state(list(step.frames)[0]).source} : s.peer();
  return {s.code(), s.what(), source};
}

}  // namespace tithe::engine
