// SPDX-License-Identifier: Apache-2.0
#include "engine/unit.h"

#include <algorithm>
#include <bit>
#include <limits>

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

Unit::Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::uint32_t first_part,
           std::span<const double> ratios)
    : member_(member),
      tensors_(std::move(tensors)),
      plan_(std::move(plan)),
      plan_hash_(plan_.hash(member.world)),
      round_hash_(plan_hash_),
      first_part_(first_part),
      program_(compile(plan_, member.me, member.world, ratios, member.tagging)),
      arena_(make_arena(program_.arena_bytes)),
      frames_(program_.slots.size()),
      heard_(program_.slots.size()),
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
    adopted_.push_back(false);
    settings_.push_back(p.spec.settings);
    residuals = residuals || keeps_residual(p.spec);
    velocities = velocities || keeps_velocity(p.spec);
  }
  for (int k = 0; k < 2; ++k) {
    if (residuals) residual_[k].assign(values_, 0.0F);
    if (velocities) velocity_[k].assign(values_, 0.0F);
    memory_[k].assign(program_.memory_bytes, 0);
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

void Unit::use_ratio(double ratio) {
  for (std::size_t i = 0; i < plan_.parts.size(); ++i)
    if (plan_.parts[i].scheduled) settings_[i] = with_ratio(plan_.parts[i].spec, ratio);
  round_hash_ = mix64(plan_hash_ ^ std::bit_cast<std::uint64_t>(ratio));
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
  if (!finite_) fill_with_nan();
}

void Unit::fill_with_nan() {
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
  if (!keep) {
    if (finite_) fill_with_nan();
    return;
  }
  now_ = 1 - now_;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
    if (!adopted_[p]) continue;  // else a lossless codec sent all of it
    carries_[p] = adopted_[p] = false;
    for (std::vector<float>& r : residual_)
      std::fill_n(r.begin() + static_cast<std::ptrdiff_t>(plan_.parts[p].first), plan_.parts[p].n, 0.0F);
  }
}

// A part with a memory lies within one tensor, and parts stand in the order of their values: one run of bytes.
std::span<std::uint8_t> Unit::memory(const TensorLayout& t) {
  std::size_t first = 0;
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
    const Part& part = plan_.parts[p];
    const std::vector<std::size_t>& at = program_.parts[p].memory;
    if (at.front() == at.back() || part.first < t.first || part.first >= t.first + t.n) continue;
    if (bytes == 0) first = at.front();
    bytes += at.back() - at.front();
  }
  return std::span(memory_[now_]).subspan(first, bytes);
}

std::uint64_t Unit::memory_kind(const TensorLayout& t) const {
  std::uint64_t kind = 0;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
    const Part& part = plan_.parts[p];
    const PartLayout& layout = program_.parts[p];
    if (layout.memory.front() == layout.memory.back() || part.first < t.first || part.first >= t.first + t.n)
      continue;
    for (const char c : to_string(part.spec)) kind = mix64(kind ^ static_cast<unsigned char>(c));
    for (const std::size_t start : layout.starts) kind = mix64(kind ^ (part.first - t.first + start));
  }
  return kind;
}

void Unit::adopt(const TensorLayout& t, std::span<const float> from) {
  const bool owed = std::any_of(from.begin(), from.end(), [](float v) { return v != 0.0F; });
  if (owed)
    for (std::vector<float>& r : residual_) r.resize(values_);
  if (has_residual()) {
    const std::span<float> to = residual(t);
    std::fill(to.begin(), to.end(), 0.0F);
    std::copy(from.begin(), from.end(), to.begin());
  }
  if (!owed) return;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
    const Part& part = plan_.parts[p];
    if (carries_[p] || part.first >= t.first + t.n || t.first >= part.first + part.n) continue;
    carries_[p] = true;
    adopted_[p] = part.spec.codec->traits.lossless;
  }
}

ByteView Unit::outgoing(const Step& step) const {
  const Slot& s = program_.slots[static_cast<std::size_t>(step.slot)];
  return {arena_.get() + s.offset,
          frames_[static_cast<std::size_t>(step.slot)].bytes + member_.tagging.trailer()};
}

Bytes Unit::incoming(const Step& step) { return slot(step.slot); }

void Unit::received(const Step& step, std::size_t bytes) {
  state(step.slot).bytes = bytes - std::min(bytes, member_.tagging.trailer());
}

// ---- Steps

Unit::Where Unit::where(const Step& step) {
  const auto p = static_cast<std::size_t>(step.part);
  const PartLayout& layout = program_.parts[p];
  return {plan_.parts[p],
          layout,
          layout.laws[step.phase],
          chunks_[static_cast<std::size_t>(layout.first_chunk) + static_cast<std::size_t>(step.chunk)],
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

  const FeedbackPolicy& policy = p.spec.feedback;
  const float* source = flat;
  // Each tensor by itself: which others share its part is no matter of its own.
  each_tensor(p, [&](const Tensor&, const TensorLayout&, std::size_t from, std::size_t to) {
    const std::span<float> grad(flat + (from - p.first), to - from);
    const float s = clip_factor(grad, policy.clip);
    if (keeps_velocity(p.spec)) {
      apply_momentum(policy, s, grad, velocity_[now_].data() + from, velocity_[1 - now_].data() + from);
    } else if (s != 1.0F) {
      for (float& v : grad) v *= s;
    }
  });
  if (keeps_velocity(p.spec) && !policy.nesterov) source = velocity_[1 - now_].data() + p.first;
  for (Chunk c = 0; c < layout.chunks; ++c)
    chunks_[static_cast<std::size_t>(layout.first_chunk) + static_cast<std::size_t>(c)].source =
        source + layout.at(c);
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

}  // namespace tithe::engine
