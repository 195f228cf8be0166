// SPDX-License-Identifier: Apache-2.0
// now_ is the index of the committed copy of all state. commit() and undo() exchange the two copies by changing it, so
// they copy no value.
#include "feedback/error_feedback.h"

#include <algorithm>

#include "base/rng.h"
#include "feedback/masks.h"
#include "feedback/momentum.h"
#include "feedback/policy.h"
#include "tithe/seam/spec.h"

namespace tithe::feedback {
namespace {

bool has_unsent(std::span<const float> residual) {
  return std::ranges::any_of(residual, [](float v) { return v != 0.0F; });
}

}  // namespace

ErrorFeedback::ErrorFeedback(std::vector<ValueRange> tensors, std::vector<FeedbackPart> parts,
                             std::span<const StateKinds> incoming)
    : tensors_(std::move(tensors)), feedback_parts_(std::move(parts)) {
  std::size_t memory = 0;
  auto begins = tensors_.begin();
  for (const FeedbackPart& p : feedback_parts_) {
    // A part that begins with a tensor shares no tensor with earlier parts.
    while (begins != tensors_.end() && (begins->first < p.values.first || begins->n == 0)) ++begins;
    if (begins != tensors_.end() && begins->first == p.values.first)
      buffers_.push_back({.values = {p.values.first, 0}, .lossless = p.lossless() && !p.only});
    StateBuffer& buffer = buffers_.back();
    buffer.values.n += p.values.n;
    PartState s{.keeps_velocity = keeps_velocity(p.spec),
                .has_residual = keeps_residual(p.spec) || (p.inside && keeps_residual(*p.inside)),
                .buffer = buffers_.size() - 1};
    buffer.needs.residual = buffer.needs.residual || s.has_residual;
    buffer.needs.velocity = buffer.needs.velocity || s.keeps_velocity;
    for (std::size_t c = 0; c + 1 < p.starts.size(); ++c) {
      s.memory.push_back(memory);
      if (const auto bytes = p.spec.codec->memory)
        memory += bytes(p.spec.settings, p.starts[c + 1] - p.starts[c]);
    }
    s.memory.push_back(memory);
    if (p.spec.feedback.kind == Feedback::kDecay) s.decayed.resize(p.starts.size() - 1);
    parts_.push_back(std::move(s));
  }
  for (std::vector<std::uint8_t>& m : memory_) m.assign(memory, 0);
  std::vector<StateKinds> needs;
  for (const StateBuffer& h : buffers_) needs.push_back(h.needs);
  for (std::size_t t = 0; t < incoming.size(); ++t)
    if (StateBuffer* h = alone(tensors_[t]); h != nullptr) {
      h->needs.residual = h->needs.residual && !incoming[t].residual;
      h->needs.velocity = h->needs.velocity && !incoming[t].velocity;
    }
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    buffers_[k].make_room();
    buffers_[k].needs = needs[k];
  }
}

std::size_t ErrorFeedback::bytes(std::span<const FeedbackPart> parts) {
  std::size_t sum = 0;
  for (const FeedbackPart& p : parts) {
    const std::size_t buffers =
        (keeps_residual(p.spec) || (p.inside && keeps_residual(*p.inside)) ? 1U : 0U) +
        (keeps_velocity(p.spec) ? 1U : 0U);
    sum += 2 * buffers * sizeof(float) * p.values.n;
    if (const auto memory = p.spec.codec->memory)
      for (std::size_t c = 0; c + 1 < p.starts.size(); ++c)
        sum += 2 * memory(p.spec.settings, p.starts[c + 1] - p.starts[c]);
  }
  return sum;
}

// ---- A round

// Computes, per tensor, the gradient with clipping and momentum (momentum.h). Plain momentum writes it to the next
// velocity; otherwise it is in `grad`.
const float* ErrorFeedback::load(int part, std::size_t first, std::span<float> grad) {
  const FeedbackPart& p = feedback_part(part);
  const ValueRange values{p.values.first + first, grad.size()};
  const FeedbackPolicy& policy = p.spec.feedback;
  const bool momentum = state(part).keeps_velocity;
  TITHE_ASSERT(policy.clip <= 0 || values.n == p.values.n);
  if (!momentum && policy.clip <= 0) return grad.data();
  each_tensor_in(tensors_, values, [&](std::size_t, std::size_t from, std::size_t to) {
    const std::span<float> own = grad.subspan(from - values.first, to - from);
    const float s = clip_factor(own, policy.clip);
    if (momentum) {
      apply_momentum(policy, s, own, at(&StateBuffer::velocity, now_, part, from),
                     at(&StateBuffer::velocity, 1 - now_, part, from));
    } else if (s != 1.0F) {
      for (float& v : own) v *= s;
    }
  });
  return momentum && !policy.nesterov ? at(&StateBuffer::velocity, 1 - now_, part, values.first)
                                      : grad.data();
}

EncodeInput ErrorFeedback::view(int part, int chunk, const float* grad, bool updates) {
  const ValueRange c = chunk_of(part, chunk);
  return {grad, state(part).has_residual ? at(&StateBuffer::residual, now_, part, c.first) : nullptr,
          updates ? residual_out(part, chunk) : nullptr, c.n};
}

float* ErrorFeedback::residual_out(int part, int chunk) {
  const PartState& s = state(part);
  return s.has_residual && !s.adopted
             ? at(&StateBuffer::residual, 1 - now_, part, chunk_of(part, chunk).first)
             : nullptr;
}

void ErrorFeedback::update_residual(int part, int chunk, const Impl& impl, ByteView payload) {
  const FeedbackPolicy& policy = feedback_part(part).spec.feedback;
  const ValueRange c = chunk_of(part, chunk);
  if (policy.kind == Feedback::kDecay && state(part).has_residual)
    state(part).decayed[static_cast<std::size_t>(chunk)] = decay(policy, {residual_out(part, chunk), c.n});
  else if (policy.mask && state(part).keeps_velocity)
    mask_velocity(impl, payload, at(&StateBuffer::velocity, 1 - now_, part, c.first));
}

ByteView ErrorFeedback::at(const std::vector<std::uint8_t>& memory, int part, int chunk) const {
  const std::vector<std::size_t>& starts = parts_[static_cast<std::size_t>(part)].memory;
  const auto c = static_cast<std::size_t>(chunk);
  return ByteView(memory).subspan(starts[c], starts[c + 1] - starts[c]);
}

Bytes ErrorFeedback::next_memory(int part, int chunk) {
  std::vector<std::uint8_t>& next = memory_[1 - now_];
  const ByteView v = at(next, part, chunk);
  return std::span(next).subspan(static_cast<std::size_t>(v.data() - next.data()), v.size());
}

double ErrorFeedback::commit(bool for_good) {
  now_ = 1 - now_;
  double decayed = 0;
  for (PartState& p : parts_)
    for (double& sum : p.decayed) decayed += std::exchange(sum, 0);
  if (for_good) spend();
  return decayed;
}

void ErrorFeedback::spend() {
  for (PartState& p : parts_) {
    if (!p.adopted) continue;  // otherwise no residual is left over
    p.has_residual = p.adopted = false;
    for (LargeFloats& r : buffers_[p.buffer].residual)
      if (!r.empty()) spent_.push_back(std::exchange(r, {}));
  }
}

void ErrorFeedback::undo() { now_ = 1 - now_; }

// ---- On a GPU

Status ErrorFeedback::to_device(int part, const std::shared_ptr<device::Ferry>& by) {
  StateBuffer& h = buffers_[state(part).buffer];
  return state(part).has_residual ? h.device.to_device(h.residual, h.values.n, by) : Status{};
}

Status ErrorFeedback::to_host(int part) {
  fetch(buffers_[state(part).buffer]);
  return lost_;
}

Status ErrorFeedback::to_host() {
  for (StateBuffer& h : buffers_) fetch(h);
  return lost_;
}

void ErrorFeedback::fetch(StateBuffer& buffer) {
  Status copied = buffer.device.to_host(buffer.residual, buffer.values.n);
  if (!copied.ok() && lost_.ok()) lost_ = std::move(copied);
}

ErrorFeedback::DeviceView ErrorFeedback::device_view(int part, int chunk, bool updates) {
  const PartState& s = state(part);
  if (!s.has_residual) return {};
  const StateBuffer& h = buffers_[s.buffer];
  TITHE_ASSERT(h.device.on_device());
  const std::size_t first = chunk_of(part, chunk).first - h.values.first;
  return {h.device.at(now_, first), updates ? h.device.at(1 - now_, first) : 0};
}

std::span<float> ErrorFeedback::residual(ValueRange tensor) {
  if (StateBuffer* h = find(tensor)) fetch(*h);
  return cut(&StateBuffer::residual, tensor);
}

std::span<const float> ErrorFeedback::read_residual(ValueRange tensor) {
  if (StateBuffer* h = find(tensor)) {
    Status seen = h->device.read_copy(h->residual, now_, h->values.n);
    if (!seen.ok() && lost_.ok()) lost_ = std::move(seen);
  }
  return cut(&StateBuffer::residual, tensor);
}

void ErrorFeedback::lend_next() {
  for (StateBuffer& h : buffers_)
    for (LargeFloats* next : {&h.residual[1 - now_], &h.velocity[1 - now_]})
      mark_discardable(next->data(), sizeof(float) * next->size());
}

// ---- By tensor

StateBuffer* ErrorFeedback::find(ValueRange tensor) {
  if (tensor.n == 0) return nullptr;
  const auto after = std::ranges::upper_bound(buffers_, tensor.first, {},
                                              [](const StateBuffer& h) { return h.values.first; });
  return &*std::prev(after);
}

StateBuffer* ErrorFeedback::alone(ValueRange tensor) {
  StateBuffer* h = find(tensor);
  return h != nullptr && h->values.n == tensor.n ? h : nullptr;
}

std::span<float> ErrorFeedback::cut(DoubleBuffer StateBuffer::*member, ValueRange tensor) {
  StateBuffer* h = find(tensor);
  if (h == nullptr || (h->*member)[now_].empty()) return {};
  return std::span((h->*member)[now_]).subspan(tensor.first - h->values.first, tensor.n);
}

float* ErrorFeedback::at(DoubleBuffer StateBuffer::*member, int which, int part, std::size_t first) {
  StateBuffer& h = buffers_[state(part).buffer];
  return (h.*member)[which].data() + (first - h.values.first);
}

// A part with a memory belongs to one tensor, and parts are in the order of their values, so the memory of a tensor
// is one range of bytes.
bool ErrorFeedback::remembers(std::size_t part, ValueRange tensor) const {
  const std::vector<std::size_t>& at = parts_[part].memory;
  const std::size_t first = feedback_parts_[part].values.first;
  return at.front() != at.back() && first >= tensor.first && first < tensor.first + tensor.n;
}

std::span<std::uint8_t> ErrorFeedback::memory(ValueRange tensor) {
  std::size_t first = 0;
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!remembers(p, tensor)) continue;
    if (bytes == 0) first = parts_[p].memory.front();
    bytes += parts_[p].memory.back() - parts_[p].memory.front();
  }
  return std::span(memory_[now_]).subspan(first, bytes);
}

std::uint64_t ErrorFeedback::memory_kind(ValueRange tensor) const {
  std::uint64_t kind = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!remembers(p, tensor)) continue;
    const FeedbackPart& feedback_part = feedback_parts_[p];
    for (const char c : to_string(feedback_part.spec)) kind = mix64(kind ^ static_cast<unsigned char>(c));
    for (const std::size_t start : feedback_part.starts)
      kind = mix64(kind ^ (feedback_part.values.first - tensor.first + start));
  }
  return kind;
}

// Without unsent values the parts need no residual.
void ErrorFeedback::adopt(ValueRange tensor, std::span<const float> residual) {
  StateBuffer* h = find(tensor);
  if (h == nullptr) return;
  fetch(*h);
  const bool unsent = has_unsent(residual);
  if (unsent) h->residual[now_].resize(h->values.n);
  if (const std::span<float> to = this->residual(tensor); !to.empty()) {
    if (residual.size() < to.size()) std::ranges::fill(to, 0.0F);
    std::ranges::copy(residual, to.begin());
  }
  if (unsent) send_residual_of(*h, tensor);
  copy_committed(tensor);
}

void ErrorFeedback::copy_committed(ValueRange tensor) {
  const StateBuffer* const h = find(tensor);
  if (h == nullptr || h->residual[0].empty() || h->residual[1].empty()) return;
  for (std::size_t p = 0; p < feedback_parts_.size(); ++p) {
    if (!feedback_parts_[p].only || feedback_parts_[p].values.first != tensor.first) continue;
    for (int c = 0; c + 1 < static_cast<int>(feedback_parts_[p].starts.size()); ++c) {
      if (c == *feedback_parts_[p].only) continue;
      const ValueRange chunk = chunk_of(static_cast<int>(p), c);
      std::copy_n(at(&StateBuffer::residual, now_, static_cast<int>(p), chunk.first), chunk.n,
                  at(&StateBuffer::residual, 1 - now_, static_cast<int>(p), chunk.first));
    }
  }
}

// A lossless part sends the residual in one round and then needs none. Any other part keeps a residual from now on:
// its next residual is the sum of old and new unsent values.
void ErrorFeedback::send_residual_of(StateBuffer& buffer, ValueRange tensor) {
  buffer.needs.residual = buffer.needs.residual || !buffer.lossless;
  buffer.make_room();
  for (std::size_t p = 0; p < feedback_parts_.size(); ++p) {
    const ValueRange part = feedback_parts_[p].values;
    if (parts_[p].has_residual || part.first >= tensor.first + tensor.n ||
        tensor.first >= part.first + part.n)
      continue;
    parts_[p].has_residual = true;
    parts_[p].adopted = buffer.lossless;
  }
}

// ---- Other buffers

StateKinds ErrorFeedback::transferable(ValueRange tensor) {
  const StateBuffer* h = alone(tensor);
  const auto has = [](const DoubleBuffer& c) { return !c[0].empty() && !c[1].empty(); };
  return h == nullptr ? StateKinds{}
                      : StateKinds{h->device.on_device() || has(h->residual), has(h->velocity)};
}

// Swaps memory instead of copying values. If this side needs no residual but the other has unsent values, the parts
// here send them (send_residual_of).
bool ErrorFeedback::take_over(ValueRange tensor, ErrorFeedback& other, ValueRange other_range, bool counts) {
  StateBuffer* mine = alone(tensor);
  StateBuffer* from = other.alone(other_range);
  if (mine == nullptr || from == nullptr) return false;
  fetch(*mine);
  other.fetch(*from);
  if (!other.lost_.ok() && lost_.ok()) lost_ = other.lost_;
  // now_ is common to all state of an ErrorFeedback, so copies are swapped by their role. An adopted residual has
  // only the committed copy.
  const auto take = [&](DoubleBuffer& to, DoubleBuffer& had) {
    to[now_].swap(had[other.now_]);
    if (to[1 - now_].empty()) to[1 - now_].swap(had[1 - other.now_]);
  };
  if (mine->needs.velocity && !from->velocity[0].empty() && (counts || mine->velocity[0].empty()))
    take(mine->velocity, from->velocity);
  const LargeFloats& residual = from->residual[other.now_];
  if (residual.empty()) return true;
  if (mine->needs.residual) {
    if (counts || mine->residual[now_].empty()) take(mine->residual, from->residual);
  } else if (counts && has_unsent(residual)) {
    if (mine->lossless)
      mine->residual[now_].swap(from->residual[other.now_]);
    else
      take(mine->residual, from->residual);
    send_residual_of(*mine, tensor);
  }
  return true;
}

void ErrorFeedback::complete() {
  for (StateBuffer& h : buffers_) h.make_room();
}

}  // namespace tithe::feedback
