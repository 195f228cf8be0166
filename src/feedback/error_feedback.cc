// SPDX-License-Identifier: Apache-2.0
#include "feedback/error_feedback.h"

#include <algorithm>

#include "base/rng.h"
#include "feedback/masks.h"
#include "feedback/momentum.h"
#include "feedback/policy.h"
#include "tithe/seam/spec.h"

namespace tithe::carry {
namespace {

bool owes(std::span<const float> residual) {
  return std::ranges::any_of(residual, [](float v) { return v != 0.0F; });
}

}  // namespace

Buffers::Buffers(std::vector<Slice> tensors, std::vector<Piece> pieces, std::span<const Own> comes)
    : tensors_(std::move(tensors)), pieces_(std::move(pieces)) {
  std::size_t memory = 0;
  auto begins = tensors_.begin();
  for (const Piece& p : pieces_) {
    // A part that begins with a tensor shares none with the parts before.
    while (begins != tensors_.end() && (begins->first < p.values.first || begins->n == 0)) ++begins;
    if (begins != tensors_.end() && begins->first == p.values.first)
      holdings_.push_back({.values = {p.values.first, 0}, .lossless = p.lossless() && !p.only});
    Holding& holding = holdings_.back();
    holding.values.n += p.values.n;
    PartState s{.keeps_velocity = keeps_velocity(p.spec),
                .carries = keeps_residual(p.spec) || (p.inside && keeps_residual(*p.inside)),
                .holding = holdings_.size() - 1};
    holding.needs.residual = holding.needs.residual || s.carries;
    holding.needs.velocity = holding.needs.velocity || s.keeps_velocity;
    for (std::size_t c = 0; c + 1 < p.starts.size(); ++c) {
      s.memory.push_back(memory);
      if (const auto bytes = p.spec.codec->memory)
        memory += bytes(p.spec.settings, p.starts[c + 1] - p.starts[c]);
    }
    s.memory.push_back(memory);
    if (p.spec.feedback.kind == Feedback::kDecay) s.forgotten.resize(p.starts.size() - 1);
    parts_.push_back(std::move(s));
  }
  for (std::vector<std::uint8_t>& m : memory_) m.assign(memory, 0);
  std::vector<Own> needs;
  for (const Holding& h : holdings_) needs.push_back(h.needs);
  for (std::size_t t = 0; t < comes.size(); ++t)
    if (Holding* h = alone(tensors_[t]); h != nullptr) {
      h->needs.residual = h->needs.residual && !comes[t].residual;
      h->needs.velocity = h->needs.velocity && !comes[t].velocity;
    }
  for (std::size_t k = 0; k < holdings_.size(); ++k) {
    holdings_[k].make_room();
    holdings_[k].needs = needs[k];
  }
}

std::size_t Buffers::bytes(std::span<const Piece> pieces) {
  std::size_t sum = 0;
  for (const Piece& p : pieces) {
    const std::size_t kept = (keeps_residual(p.spec) || (p.inside && keeps_residual(*p.inside)) ? 1U : 0U) +
                             (keeps_velocity(p.spec) ? 1U : 0U);
    sum += 2 * kept * sizeof(float) * p.values.n;
    if (const auto memory = p.spec.codec->memory)
      for (std::size_t c = 0; c + 1 < p.starts.size(); ++c)
        sum += 2 * memory(p.spec.settings, p.starts[c + 1] - p.starts[c]);
  }
  return sum;
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
      apply_momentum(policy, s, own, at(&Holding::velocity, now_, part, from),
                     at(&Holding::velocity, 1 - now_, part, from));
    } else if (s != 1.0F) {
      for (float& v : own) v *= s;
    }
  });
  return momentum && !policy.nesterov ? at(&Holding::velocity, 1 - now_, part, values.first) : grad.data();
}

Carry Buffers::view(int part, int chunk, const float* grad, bool settles) {
  const Slice c = chunk_of(part, chunk);
  return {grad, state(part).carries ? at(&Holding::residual, now_, part, c.first) : nullptr,
          settles ? residual_out(part, chunk) : nullptr, c.n};
}

float* Buffers::residual_out(int part, int chunk) {
  const PartState& s = state(part);
  return s.carries && !s.adopted ? at(&Holding::residual, 1 - now_, part, chunk_of(part, chunk).first)
                                 : nullptr;
}

void Buffers::settle(int part, int chunk, const Impl& impl, ByteView payload) {
  const FeedbackPolicy& policy = piece(part).spec.feedback;
  const Slice c = chunk_of(part, chunk);
  if (policy.kind == Feedback::kDecay && state(part).carries)
    state(part).forgotten[static_cast<std::size_t>(chunk)] = decay(policy, {residual_out(part, chunk), c.n});
  else if (policy.mask && state(part).keeps_velocity)
    mask_velocity(impl, payload, at(&Holding::velocity, 1 - now_, part, c.first));
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

double Buffers::commit(bool for_good) {
  now_ = 1 - now_;
  double forgotten = 0;
  for (PartState& p : parts_)
    for (double& sum : p.forgotten) forgotten += std::exchange(sum, 0);
  if (for_good) spend();
  return forgotten;
}

void Buffers::spend() {
  for (PartState& p : parts_) {
    if (!p.adopted) continue;  // else a lossless codec sent all of it
    p.carries = p.adopted = false;
    for (LargeFloats& r : holdings_[p.holding].residual)
      if (!r.empty()) spent_.push_back(std::exchange(r, {}));
  }
}

void Buffers::undo() { now_ = 1 - now_; }

// ---- On a GPU

Status Buffers::leave(int part, const std::shared_ptr<device::Ferry>& by) {
  Holding& h = holdings_[state(part).holding];
  return state(part).carries ? h.afar.leave(h.residual, h.values.n, by) : Status{};
}

Status Buffers::come_home(int part) {
  bring_home(holdings_[state(part).holding]);
  return lost_;
}

Status Buffers::come_home() {
  for (Holding& h : holdings_) bring_home(h);
  return lost_;
}

void Buffers::bring_home(Holding& holding) {
  Status came = holding.afar.come_home(holding.residual, holding.values.n);
  if (!came.ok() && lost_.ok()) lost_ = std::move(came);
}

Buffers::Away Buffers::away(int part, int chunk, bool settles) {
  const PartState& s = state(part);
  if (!s.carries) return {};
  const Holding& h = holdings_[s.holding];
  TITHE_ASSERT(h.afar.away());
  const std::size_t first = chunk_of(part, chunk).first - h.values.first;
  return {h.afar.at(now_, first), settles ? h.afar.at(1 - now_, first) : 0};
}

std::span<float> Buffers::residual(Slice tensor) {
  if (Holding* h = find(tensor)) bring_home(*h);
  return cut(&Holding::residual, tensor);
}

std::span<const float> Buffers::see_residual(Slice tensor) {
  if (Holding* h = find(tensor)) {
    Status seen = h->afar.see(h->residual, now_, h->values.n);
    if (!seen.ok() && lost_.ok()) lost_ = std::move(seen);
  }
  return cut(&Holding::residual, tensor);
}

void Buffers::lend_next() {
  for (Holding& h : holdings_)
    for (LargeFloats* next : {&h.residual[1 - now_], &h.velocity[1 - now_]})
      lend(next->data(), sizeof(float) * next->size());
}

// ---- By tensor

Holding* Buffers::find(Slice tensor) {
  if (tensor.n == 0) return nullptr;
  const auto after =
      std::ranges::upper_bound(holdings_, tensor.first, {}, [](const Holding& h) { return h.values.first; });
  return &*std::prev(after);
}

Holding* Buffers::alone(Slice tensor) {
  Holding* h = find(tensor);
  return h != nullptr && h->values.n == tensor.n ? h : nullptr;
}

std::span<float> Buffers::cut(Copies Holding::*kept, Slice tensor) {
  Holding* h = find(tensor);
  if (h == nullptr || (h->*kept)[now_].empty()) return {};
  return std::span((h->*kept)[now_]).subspan(tensor.first - h->values.first, tensor.n);
}

float* Buffers::at(Copies Holding::*kept, int which, int part, std::size_t first) {
  Holding& h = holdings_[state(part).holding];
  return (h.*kept)[which].data() + (first - h.values.first);
}

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
  Holding* h = find(tensor);
  if (h == nullptr) return;
  bring_home(*h);
  const bool owed = owes(residual);
  if (owed) h->residual[now_].resize(h->values.n);
  if (const std::span<float> to = this->residual(tensor); !to.empty()) {
    if (residual.size() < to.size()) std::ranges::fill(to, 0.0F);
    std::ranges::copy(residual, to.begin());
  }
  if (owed) carry_debts(*h, tensor);
  rest(tensor);
}

void Buffers::rest(Slice tensor) {
  const Holding* const h = find(tensor);
  if (h == nullptr || h->residual[0].empty() || h->residual[1].empty()) return;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    if (!pieces_[p].only || pieces_[p].values.first != tensor.first) continue;
    for (int c = 0; c + 1 < static_cast<int>(pieces_[p].starts.size()); ++c) {
      if (c == *pieces_[p].only) continue;
      const Slice chunk = chunk_of(static_cast<int>(p), c);
      std::copy_n(at(&Holding::residual, now_, static_cast<int>(p), chunk.first), chunk.n,
                  at(&Holding::residual, 1 - now_, static_cast<int>(p), chunk.first));
    }
  }
}

// A lossless part reads them once. Any other keeps a residual from then on: what is new in it cannot be told from what
// was owed.
void Buffers::carry_debts(Holding& holding, Slice tensor) {
  holding.needs.residual = holding.needs.residual || !holding.lossless;
  holding.make_room();
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const Slice part = pieces_[p].values;
    if (parts_[p].carries || part.first >= tensor.first + tensor.n || tensor.first >= part.first + part.n)
      continue;
    parts_[p].carries = true;
    parts_[p].adopted = holding.lossless;
  }
}

// ---- Other buffers

Own Buffers::gives(Slice tensor) {
  const Holding* h = alone(tensor);
  const auto has = [](const Copies& c) { return !c[0].empty() && !c[1].empty(); };
  return h == nullptr ? Own{} : Own{h->afar.away() || has(h->residual), has(h->velocity)};
}

bool Buffers::take_over(Slice tensor, Buffers& other, Slice theirs, bool counts) {
  Holding* mine = alone(tensor);
  Holding* from = other.alone(theirs);
  if (mine == nullptr || from == nullptr) return false;
  bring_home(*mine);
  other.bring_home(*from);
  if (!other.lost_.ok() && lost_.ok()) lost_ = other.lost_;
  // Both have one `now_` for all that they keep. One copy is all there is where it was about to be sent.
  const auto take = [&](Copies& to, Copies& had) {
    to[now_].swap(had[other.now_]);
    if (to[1 - now_].empty()) to[1 - now_].swap(had[1 - other.now_]);
  };
  if (mine->needs.velocity && !from->velocity[0].empty() && (counts || mine->velocity[0].empty()))
    take(mine->velocity, from->velocity);
  const LargeFloats& kept = from->residual[other.now_];
  if (kept.empty()) return true;
  if (mine->needs.residual) {
    if (counts || mine->residual[now_].empty()) take(mine->residual, from->residual);
  } else if (counts && owes(kept)) {
    if (mine->lossless)
      mine->residual[now_].swap(from->residual[other.now_]);
    else
      take(mine->residual, from->residual);
    carry_debts(*mine, tensor);
  }
  return true;
}

void Buffers::complete() {
  for (Holding& h : holdings_) h.make_room();
}

}  // namespace tithe::carry
