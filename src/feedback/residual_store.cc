// SPDX-License-Identifier: Apache-2.0
// Residual and velocity of a tensor are in exactly one place: in the buffers of its owner, or in the loose fields. A
// move copies or takes over the values before it replaces the TensorState. Saved states list the keys in ascending
// order; an array of zeros is saved as an empty array, because buffers without a residual have none.
#include "feedback/residual_store.h"

#include <algorithm>
#include <bit>

#include "base/finite.h"
#include "codec/shared/common/magnitude.h"

namespace tithe::feedback {
namespace {

void put(ArchiveWriter& out, std::span<const float> v) {
  out.number(std::uint64_t{v.size()});
  for (const float f : v) out.number(f);
}

void put(ArchiveWriter& out, ByteView v) {
  out.number(std::uint64_t{v.size()});
  out.raw(v);
}

std::vector<float> floats(ArchiveReader& in) {
  const ByteView b = in.raw(in.number<std::uint64_t>(), sizeof(float));
  std::vector<float> v(b.size() / sizeof(float));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = wire::get<float>(&b[4 * i]);
  return v;
}

// Zeros are written as an empty array.
std::span<const float> tidy(std::span<const float> v) {
  return std::all_of(v.begin(), v.end(), [](float f) { return std::bit_cast<std::uint32_t>(f) == 0; })
             ? std::span<const float>{}
             : v;
}

ByteView tidy(ByteView v) {
  return std::all_of(v.begin(), v.end(), [](std::uint8_t b) { return b == 0; }) ? ByteView{} : v;
}

}  // namespace

std::span<const float> TensorState::residual() const {
  return owner == nullptr ? std::span<const float>(loose_residual) : owner->read_residual(slice);
}

std::span<const float> TensorState::velocity() const {
  return owner == nullptr ? std::span<const float>(loose_velocity) : owner->velocity(slice);
}

ByteView TensorState::memory() const {
  if (replaced_is_current) return replaced_memory;
  return owner == nullptr ? ByteView(loose_memory) : owner->memory(slice);
}

std::uint64_t TensorState::memory_kind() const {
  if (replaced_is_current) return replaced_memory_kind;
  return owner == nullptr ? loose_memory_kind : owner->memory_kind(slice);
}

DroppedResidual TensorState::drop_excessive() {
  DroppedResidual dropped{
      .largest = std::max(codec::largest_magnitude(residual()), codec::largest_magnitude(velocity()))};
  if (dropped.largest <= kMaxResidual) return {};
  const std::span<float> unsent = owner == nullptr ? std::span(loose_residual) : owner->residual(slice);
  const std::span<float> moving = owner == nullptr ? std::span(loose_velocity) : owner->velocity(slice);
  for (const float v : unsent) {
    dropped.values += v != 0.0F ? 1 : 0;
    dropped.sum += double{v};
  }
  std::ranges::fill(unsent, 0.0F);
  std::ranges::fill(moving, 0.0F);
  if (owner != nullptr) owner->copy_committed(slice);
  return dropped;
}

bool TensorState::add_unsent(std::span<const float> gradient) {
  std::vector<float> sum(gradient.begin(), gradient.end());
  const std::span<const float> unsent = residual();
  for (std::size_t i = 0; i < unsent.size(); ++i) sum[i] += unsent[i];
  if (!all_finite(sum)) return false;
  if (owner == nullptr)
    loose_residual = std::move(sum);
  else
    owner->adopt(slice, sum);
  return true;
}

void TensorState::move_to(ErrorFeedback& buffers, ValueRange to) {
  if (owner == &buffers) return;
  buffers.adopt(to, residual());
  if (const std::span<float> into = buffers.velocity(to); !into.empty()) {
    const std::span<const float> had = velocity();
    std::fill(into.begin(), into.end(), 0.0F);
    std::copy(had.begin(), had.end(), into.begin());
  }
  finish_move(buffers, to);
}

// Completes a move: copies the codec memory if its kind is the same on both sides. Otherwise the new memory starts
// empty, and the old one stays the committed memory until the next commit.
void TensorState::finish_move(ErrorFeedback& buffers, ValueRange to) {
  TensorState there{.n = to.n, .used = used, .owner = &buffers, .slice = to, .used_before = used_before};
  const std::span<std::uint8_t> into = buffers.memory(to);
  const ByteView had = memory();
  if (had.size() == into.size() && memory_kind() == buffers.memory_kind(to)) {
    std::copy(had.begin(), had.end(), into.begin());
  } else {
    std::fill(into.begin(), into.end(), std::uint8_t{0});
    there.replaced_memory.assign(had.begin(), had.end());
    there.replaced_memory_kind = memory_kind();
    there.replaced_is_current = !had.empty();
  }
  *this = std::move(there);
}

TensorState& ResidualStore::of(std::string_view key) {
  const auto at = tensors_.find(key);
  return at != tensors_.end() ? at->second : tensors_.emplace(std::string(key), TensorState{}).first->second;
}

const TensorState* ResidualStore::find(std::string_view key) const {
  const auto at = tensors_.find(key);
  return at == tensors_.end() ? nullptr : &at->second;
}

void ResidualStore::restore(Map&& saved) {
  for (auto& [key, state] : tensors_) state = {.n = state.n};
  for (auto& [key, state] : saved) of(key) = std::move(state);
}

void write(const ResidualStore& store, ArchiveWriter& out, bool residuals) {
  out.number(std::uint64_t{store.all().size()});
  for (const auto& [key, state] : store.all()) {
    out.text(key);
    out.number(std::uint64_t{state.n});
    put(out, residuals ? tidy(state.residual()) : std::span<const float>{});
    put(out, residuals ? tidy(state.velocity()) : std::span<const float>{});
    const ByteView memory = tidy(state.memory());
    out.number(memory.empty() ? std::uint64_t{0} : state.memory_kind());
    put(out, memory);
  }
}

// Reads the fields in the order of write(). Keys must ascend, so no key occurs twice.
Status read(ArchiveReader& in, ResidualStore::Map& saved) {
  const Status corrupt(Code::kCorrupt, "the bytes are not a saved state of a session");
  const auto keys = in.number<std::uint64_t>();
  for (std::uint64_t k = 0; k < keys && in.whole(); ++k) {
    std::string key = in.text();
    if (!saved.empty() && key <= saved.rbegin()->first) return corrupt;
    TensorState state;
    state.n = in.number<std::uint64_t>();
    state.loose_residual = floats(in);
    state.loose_velocity = floats(in);
    state.loose_memory_kind = in.number<std::uint64_t>();
    const ByteView memory = in.raw(in.number<std::uint64_t>());
    state.loose_memory.assign(memory.begin(), memory.end());
    if ((!state.loose_residual.empty() && state.loose_residual.size() != state.n) ||
        (!state.loose_velocity.empty() && state.loose_velocity.size() != state.n))
      return corrupt;
    if (!all_finite(state.loose_residual) || !all_finite(state.loose_velocity))
      return {Code::kCorrupt, "the saved state has a NaN or Inf for tensor '" + key +
                                  "', which would spread to every rank: resume from an earlier state"};
    saved.emplace(std::move(key), std::move(state));
  }
  return in.done() ? Status{} : corrupt;
}

}  // namespace tithe::feedback
