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

// The largest magnitude in a residual or velocity: the square of a larger value is barely a finite float, and its sums
// soon overflow. A result of that size ruins the parameters, with or without compression.
inline constexpr float kMostCarried = 0x1p63F;

// Residual values that were dropped and will not be sent.
struct DroppedResidual {
  std::size_t values = 0;  // non-zero values
  double sum = 0;          // of them, as in the residual
  float largest = 0;       // magnitude; 0: nothing was dropped
};

// The state of one tensor between rounds.
struct TensorState {
  std::size_t n = 0;            // values
  std::uint64_t used = 0;       // 1 + the last round that synchronised it
  ErrorFeedback* in = nullptr;  // holds the state; nullptr: loose, in the fields below
  ValueRange slice = {};        // the tensor's values in it
  std::vector<float> loose_residual = {}, loose_velocity = {};  // empty stands for zeros
  std::vector<std::uint8_t> loose_memory = {};                  // likewise
  std::uint64_t loose_memory_kind = 0;                          // ErrorFeedback::memory_kind of that memory
  // A codec's memory at the last commit, if the open round began with another one. `left`: it is the committed memory.
  // Once that round is committed it is kept for undo() alone.
  std::vector<std::uint8_t> left_memory = {};
  std::uint64_t left_memory_kind = 0;
  bool left = false;
  std::uint64_t used_before = 0;  // `used`, before the round that is open or was committed last

  std::span<const float> residual() const;
  Status lost() const { return in == nullptr ? Status{} : in->lost(); }  // ErrorFeedback::lost
  std::span<const float> velocity() const;
  ByteView memory() const;
  std::uint64_t memory_kind() const;
  // Moves the state to a slice of as many values. A memory of another kind belongs to another codec or to other chunk
  // bounds: it restarts empty.
  void move_to(ErrorFeedback& buffers, ValueRange to);
  // The same if residual and velocity are there already (ErrorFeedback::take_over).
  void finish_move(ErrorFeedback& buffers, ValueRange to);
  // Adds a gradient whose round went on without it to the residual. Returns false and does nothing if the sum is not
  // finite.
  bool add_unsent(std::span<const float> gradient);
  // Drops residual and velocity if one of them has a value beyond kMostCarried: all of both, because values near such a
  // value were rounded to its precision. The memory stays, since it is the same on all ranks.
  DroppedResidual drop_excessive();
  // The open round synchronises the tensor.
  void use(std::uint64_t number) { used_before = std::exchange(used, number); }
  // The round is committed: `left_memory` is no longer the committed memory.
  void commit() { left = false; }
  void spend() {
    if (!left && !left_memory.empty()) std::vector<std::uint8_t>().swap(left_memory);
  }
  void undo() {
    left = !left_memory.empty();
    used = used_before;
  }
};

class ResidualStore {
 public:
  using Map = std::map<std::string, TensorState, std::less<>>;

  TensorState& of(std::string_view key);  // inserted if missing; its address is stable
  const TensorState* find(std::string_view key) const;
  const Map& all() const { return tensors_; }
  Map& all() { return tensors_; }
  // Replaces all states by the loose ones of `saved`.
  void restore(Map&& saved);

 private:
  Map tensors_;
};

// The keys of a saved state, in order (docs/reference/format_state.md, "State"); without residuals as if they were
// zero.
void write(const ResidualStore& store, ArchiveWriter& out, bool residuals = true);
// Reads loose states. kCorrupt for bytes that write() did not write, and for a residual or velocity that is not finite.
Status read(ArchiveReader& in, ResidualStore::Map& saved);

}  // namespace tithe::feedback
