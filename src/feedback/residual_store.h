// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of every tensor, by key: in the ErrorFeedback of the bucket that synchronised it last, or in the store
// itself (loose) after a restore. If a key appears in another bucket, its state moves there.
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "feedback/error_feedback.h"

namespace tithe::feedback {

// The limit for magnitudes in residuals and velocities. The square of a larger value is barely a finite float, and
// its sums soon overflow. A result of that size ruins the parameters, with or without compression.
inline constexpr float kMaxResidual = 0x1p63F;

// Residual values that were dropped and will not be sent.
struct DroppedResidual {
  std::size_t values = 0;  // non-zero values
  double sum = 0;          // of them, as in the residual
  float largest = 0;       // magnitude; 0: nothing was dropped
};

// The state of one tensor between rounds.
struct TensorState {
  std::size_t n = 0;               // values
  std::uint64_t used = 0;          // 1 + the last round that synchronised it
  ErrorFeedback* owner = nullptr;  // holds the state; nullptr: loose, in the fields below
  ValueRange slice = {};           // the tensor's values in it
  std::vector<float> loose_residual = {}, loose_velocity = {};  // empty: zeros
  std::vector<std::uint8_t> loose_memory = {};                  // empty: zeros
  std::uint64_t loose_memory_kind = 0;  // the kind of that memory (ErrorFeedback::memory_kind)
  // The codec memory of the last commit, if the open round began with another kind of memory. It is the committed
  // memory while `replaced_is_current`. After that round is committed, only undo() needs it.
  std::vector<std::uint8_t> replaced_memory = {};
  std::uint64_t replaced_memory_kind = 0;
  bool replaced_is_current = false;
  std::uint64_t used_before = 0;  // `used` before the open or last committed round

  std::span<const float> residual() const;
  Status lost() const { return owner == nullptr ? Status{} : owner->lost(); }  // ErrorFeedback::lost
  std::span<const float> velocity() const;
  ByteView memory() const;
  std::uint64_t memory_kind() const;
  // Moves the state to a slice of equal size. If the memory there has another kind (another codec or other chunk
  // bounds), it starts empty.
  void move_to(ErrorFeedback& buffers, ValueRange to);
  // The same, if residual and velocity were already moved (ErrorFeedback::take_over).
  void finish_move(ErrorFeedback& buffers, ValueRange to);
  // Adds a gradient whose round ran without it to the residual. Returns false and does nothing if the sum is not
  // finite.
  bool add_unsent(std::span<const float> gradient);
  // Drops residual and velocity if one of them has a value beyond kMaxResidual. All of both are dropped, because
  // other values were rounded to the precision of the large one. The codec memory stays, since it is the same on all
  // ranks.
  DroppedResidual drop_excessive();
  // The open round contains the tensor.
  void use(std::uint64_t number) { used_before = std::exchange(used, number); }
  // The round is committed: `replaced_memory` is no longer the committed memory.
  void commit() { replaced_is_current = false; }
  void release_replaced() {
    if (!replaced_is_current && !replaced_memory.empty()) std::vector<std::uint8_t>().swap(replaced_memory);
  }
  void undo() {
    replaced_is_current = !replaced_memory.empty();
    used = used_before;
  }
};

class ResidualStore {
 public:
  using Map = std::map<std::string, TensorState, std::less<>>;

  TensorState& of(std::string_view key);  // inserted if missing; the address is stable
  const TensorState* find(std::string_view key) const;
  const Map& all() const { return tensors_; }
  Map& all() { return tensors_; }
  // Replaces all states by the loose ones of `saved`.
  void restore(Map&& saved);

 private:
  Map tensors_;
};

// Writes the states by key, in order (docs/reference/format_state.md, "State"). residuals=false: as if residuals and
// velocities were zero.
void write(const ResidualStore& store, ArchiveWriter& out, bool residuals = true);
// Reads loose states. kCorrupt: the bytes were not written by write(), or a residual or velocity is not finite.
Status read(ArchiveReader& in, ResidualStore::Map& saved);

}  // namespace tithe::feedback
