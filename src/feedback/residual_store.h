// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store knows what is kept of every tensor, by key: in the buffers of the bucket that synchronised it last, or
// loose, after a restore. When a key turns up in another bucket, what is kept of it moves there.
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "feedback/error_feedback.h"

namespace tithe::carry {

// More than this is not carried on: the square of such a value is hardly a float any more, and sums that it is part of
// are none before long. A result of that size has ruined what it is applied to, with or without compression.
inline constexpr float kMostCarried = 0x1p63F;

// Values that a tensor was owed, and is owed no longer.
struct LetGo {
  std::size_t values = 0;  // that were not zero
  double sum = 0;          // of them, as they stood in the residual
  float largest = 0;       // magnitude; 0: nothing was let go
};

// All that is kept of one tensor.
struct Kept {
  std::size_t n = 0;       // values
  std::uint64_t used = 0;  // 1 + the last round that synchronised it
  Buffers* in = nullptr;   // where it lies; nullptr: loose, in what stands below
  Slice slice = {};        // of them
  std::vector<float> loose_residual = {}, loose_velocity = {};  // empty stands for zeros
  std::vector<std::uint8_t> loose_memory = {};                  // likewise
  std::uint64_t loose_memory_kind = 0;  // Buffers::memory_kind where that memory was made
  // A codec's memory at the last commit, where the open round has begun with another one. `left` says that it counts:
  // it does not once that round is committed, and is kept then for who may take it back.
  std::vector<std::uint8_t> left_memory = {};
  std::uint64_t left_memory_kind = 0;
  bool left = false;
  std::uint64_t used_before = 0;  // `used`, before the round that is open or was committed last

  std::span<const float> residual() const;
  Status lost() const { return in == nullptr ? Status{} : in->lost(); }  // Buffers::lost
  std::span<const float> velocity() const;
  ByteView memory() const;
  std::uint64_t memory_kind() const;
  // Moves all of it to a slice of as many values. A memory of another kind is of another codec, or of values that are
  // cut in another way now: it begins anew.
  void move_to(Buffers& buffers, Slice to);
  // The same where residual and velocity are there already (Buffers::take_over).
  void settle_in(Buffers& buffers, Slice to);
  // A gradient whose round went on without it: it is owed as well. False, and nothing is done, where the sum is no
  // float.
  bool owe(std::span<const float> gradient);
  // Lets residual and velocity go where one of them holds a value beyond kMostCarried: all of both, because what stands
  // beside such a value was rounded by its measure. The memory stays, since it is the same on all ranks.
  LetGo let_go();
  // A round is open, and synchronises it.
  void use(std::uint64_t number) { used_before = std::exchange(used, number); }
  // A round is committed: nothing of before counts any more.
  void commit() { left = false; }
  void spend() {
    if (!left && !left_memory.empty()) std::vector<std::uint8_t>().swap(left_memory);
  }
  void undo() {
    left = !left_memory.empty();
    used = used_before;
  }
};

class Store {
 public:
  using Map = std::map<std::string, Kept, std::less<>>;

  Kept& of(std::string_view key);  // made on first sight; stays where it is
  const Kept* find(std::string_view key) const;
  const Map& all() const { return kept_; }
  Map& all() { return kept_; }
  // All of it is now what `saved` has loose.
  void restore(Map&& saved);

 private:
  Map kept_;
};

// The keys of a saved state, in order (docs/reference/format_state.md, "State"); without debts as if nothing were
// unsent.
void write(const Store& store, ArchiveWriter& out, bool debts = true);
// Into loose entries. kCorrupt for bytes that write() did not write, and for a residual or velocity that is not finite.
Status read(ArchiveReader& in, Store::Map& saved);

}  // namespace tithe::carry
