// SPDX-License-Identifier: Apache-2.0
#include "carry/buffers.h"

#include <algorithm>

#include "base/rng.h"
#include "carry/feedback.h"
#include "carry/masks.h"
#include "carry/policy.h"

namespace tithe::carry {

Buffers::Buffers(std::vector<Slice> tensors, std::vector<Piece> pieces, Room room)
    : tensors_(std::move(tensors)), pieces_(std::move(pieces)) {
  bool residuals = false;
  bool velocities = false;
  std::size_t memory = 0;
  for (const Piece& p : pieces_) {
    PartState s{.keeps_velocity = keeps_velocity(p.spec),
                .carries = keeps_residual(p.spec) || (p.inside && keeps_residual(*p.inside))};
    residuals = residuals || s.carries;
    velocities = velocities || s.keeps_velocity;
    for (std::size_t c = 0; c + 1 < p.starts.size(); ++c) {
      s.memory.push_back(memory);
      if (const auto bytes = p.spec.codec->memory)
        memory += bytes(p.spec.settings, p.starts[c + 1] - p.starts[c]);
    }
    s.memory.push_back(memory);
    values_ += p.values.n;
    parts_.push_back(std::move(s));
  }
  for (int k = 0; k < 2; ++k) {
    if (residuals && room == Room::kOwn) residual_[k].assign(values_, 0.0F);
    if (velocities && room == Room::kOwn) velocity_[k].assign(values_, 0.0F);
    memory_[k].assign(memory, 0);
  }
}

// ---- A round

const float* Buffers::load(int part, std::size_t first, std::span<float> grad) {
  const Piece& p = piece(part);
  const Slice values{p.values.first + first, grad.size()};
  const FeedbackPolicy& policy = p.spec.feedback;
  const bool momentum = state(part).keeps_velocity;
  TITHE_ASSERT(policy.clip <= 0 || values.n == p.values.n);
  if (!momentum && policy.clip <= 0) return grad.data();
  each_tensor_in(tensors_, values, [&](std::size_t, std::size_t from, std::size_t to) {
    const std::span<float> own = grad.subspan(from - values.first, to - from);
    const float s = clip_factor(own, policy.clip);
    if (momentum) {
      apply_momentum(policy, s, own, velocity_[now_].data() + from, velocity_[1 - now_].data() + from);
    } else if (s != 1.0F) {
      for (float& v : own) v *= s;
    }
  });
  return momentum && !policy.nesterov ? velocity_[1 - now_].data() + values.first : grad.data();
}

Carry Buffers::view(int part, int chunk, const float* grad, bool settles) {
  const Slice c = chunk_of(part, chunk);
  return {grad, state(part).carries ? residual_[now_].data() + c.first : nullptr,
          settles ? residual_out(part, chunk) : nullptr, c.n};
}

float* Buffers::residual_out(int part, int chunk) {
  return state(part).carries ? residual_[1 - now_].data() + chunk_of(part, chunk).first : nullptr;
}

void Buffers::settle(int part, int chunk, const Impl& impl, ByteView payload) {
  const FeedbackPolicy& policy = piece(part).spec.feedback;
  const Slice c = chunk_of(part, chunk);
  if (policy.kind == Feedback::kDecay && state(part).carries)
    decay(policy, cut(residual_[1 - now_], c));
  else if (policy.mask && state(part).keeps_velocity)
    mask_velocity(impl, payload, velocity_[1 - now_].data() + c.first);
}

ByteView Buffers::at(const std::vector<std::uint8_t>& memory, int part, int chunk) const {
  const std::vector<std::size_t>& starts = parts_[static_cast<std::size_t>(part)].memory;
  const auto c = static_cast<std::size_t>(chunk);
  return ByteView(memory).subspan(starts[c], starts[c + 1] - starts[c]);
}

Bytes Buffers::next_memory(int part, int chunk) {
  std::vector<std::uint8_t>& next = memory_[1 - now_];
  const ByteView v = at(next, part, chunk);
  return std::span(next).subspan(static_cast<std::size_t>(v.data() - next.data()), v.size());
}

void Buffers::commit() {
  now_ = 1 - now_;
  bool sent = false;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    if (!parts_[p].adopted) continue;  // else a lossless codec sent all of it
    parts_[p].carries = parts_[p].adopted = false;
    sent = true;
    for (std::vector<float>& r : residual_) std::ranges::fill(cut(r, pieces_[p].values), 0.0F);
  }
  if (sent && std::ranges::none_of(parts_, &PartState::carries))
    for (std::vector<float>& r : residual_) std::vector<float>().swap(r);
}

// ---- By tensor

// A part with a memory lies within one tensor, and parts stand in the order of their values: one run of bytes.
bool Buffers::remembers(std::size_t part, Slice tensor) const {
  const std::vector<std::size_t>& at = parts_[part].memory;
  const std::size_t first = pieces_[part].values.first;
  return at.front() != at.back() && first >= tensor.first && first < tensor.first + tensor.n;
}

std::span<std::uint8_t> Buffers::memory(Slice tensor) {
  std::size_t first = 0;
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!remembers(p, tensor)) continue;
    if (bytes == 0) first = parts_[p].memory.front();
    bytes += parts_[p].memory.back() - parts_[p].memory.front();
  }
  return std::span(memory_[now_]).subspan(first, bytes);
}

std::uint64_t Buffers::memory_kind(Slice tensor) const {
  std::uint64_t kind = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!remembers(p, tensor)) continue;
    const Piece& piece = pieces_[p];
    for (const char c : to_string(piece.spec)) kind = mix64(kind ^ static_cast<unsigned char>(c));
    for (const std::size_t start : piece.starts)
      kind = mix64(kind ^ (piece.values.first - tensor.first + start));
  }
  return kind;
}

void Buffers::adopt(Slice tensor, std::span<const float> residual) {
  const bool owed = std::any_of(residual.begin(), residual.end(), [](float v) { return v != 0.0F; });
  if (owed)
    for (std::vector<float>& r : residual_) r.resize(values_);
  if (has_residual()) {
    const std::span<float> to = this->residual(tensor);
    if (residual.size() < to.size()) std::fill(to.begin(), to.end(), 0.0F);
    std::copy(residual.begin(), residual.end(), to.begin());
  }
  if (!owed) return;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const Slice part = pieces_[p].values;
    if (parts_[p].carries || part.first >= tensor.first + tensor.n || tensor.first >= part.first + part.n)
      continue;
    parts_[p].carries = true;
    parts_[p].adopted = pieces_[p].lossless();
  }
}

void Buffers::take_over(Buffers& other) {
  const bool residuals = std::ranges::any_of(parts_, &PartState::carries);
  const bool velocities = std::ranges::any_of(parts_, &PartState::keeps_velocity);
  // Both have one `now_` for all that they keep.
  for (int k = 0; k < 2; ++k) {
    const int from = now_ == other.now_ ? k : 1 - k;
    if (!other.residual_[from].empty()) residual_[k].swap(other.residual_[from]);
    if (residuals) residual_[k].resize(values_);
    if (velocities && !other.velocity_[from].empty()) velocity_[k].swap(other.velocity_[from]);
    if (velocities) velocity_[k].resize(values_);
  }
  if (has_residual()) carry_debts();
}

// Parts that keep no residual have none, or what they are to send all the same.
void Buffers::carry_debts() {
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    if (parts_[p].carries) continue;
    const std::span<const float> owed = cut(residual_[now_], pieces_[p].values);
    if (std::any_of(owed.begin(), owed.end(), [](float v) { return v != 0.0F; })) {
      parts_[p].carries = true;
      parts_[p].adopted = pieces_[p].spec.codec->traits.lossless;
    } else {
      for (std::vector<float>& r : residual_) std::ranges::fill(cut(r, pieces_[p].values), 0.0F);
    }
  }
  if (std::ranges::none_of(parts_, &PartState::carries))
    for (std::vector<float>& r : residual_) std::vector<float>().swap(r);
}

}  // namespace tithe::carry
