// SPDX-License-Identifier: Apache-2.0
#pragma once
// Buffers hold what is kept of one bucket between rounds: residuals, velocities and what codecs remember. All of it
// stands there twice, as the last commit left it and as the open round leaves it.
//
// A part of the bucket goes through them in this order, each round:
//
//   load          the gradient is clipped and gets its momentum          what encode reads as gradient
//   view          gradient and residual of one chunk, as encode sees them
//   settle        after encode: decay forgets, masking clears
//   commit        what the round left is what is kept
//
//   undone   nothing changes before commit(); without it the next round reads what this one read
//   apart    parts may be loaded, and chunks viewed and settled, at the same time
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "carry/slice.h"
#include "tithe/spec.h"

namespace tithe::carry {

// A part as the carry needs it: which values, whose they are, and where its chunks begin.
struct Piece {
  Slice values;
  Spec spec;
  std::vector<std::size_t> starts;  // chunk c is [starts[c], starts[c + 1]) of the part's values
  std::optional<Spec> inside = {};  // the other codec, where ranks of one host have one for each other
  // Whether nothing of a value is left unsent.
  bool lossless() const { return spec.codec->traits.lossless && (!inside || inside->codec->traits.lossless); }
};

// Whether residuals and velocities have memory from the beginning, or get it by take_over().
enum class Room : std::uint8_t { kOwn, kComes };

class Buffers {
 public:
  // Tensors and pieces lie in order and cover the bucket.
  Buffers(std::vector<Slice> tensors, std::vector<Piece> pieces, Room room = Room::kOwn);

  // ---- A round. Parts and chunks by number.
  // Works in place on `grad`, the part's values from `first` on; all of them where they are clipped, each tensor by
  // itself: which others share its part is no matter of its own. Returns as many values.
  const float* load(int part, std::size_t first, std::span<float> grad);
  // settles: this encode decides what is left; else residuals are read alone. `grad` is the chunk's.
  Carry view(int part, int chunk, const float* grad, bool settles);
  // Where the round leaves the chunk's residual; nullptr where none is kept.
  float* residual_out(int part, int chunk);
  // The payload is the one that this impl has just made of a view that settles.
  void settle(int part, int chunk, const Impl& impl, ByteView payload);
  ByteView memory(int part, int chunk) const { return at(memory_[now_], part, chunk); }
  Bytes next_memory(int part, int chunk);
  void commit();

  // ---- What is kept of one of the tensors, as of the last commit. Empty where nothing is.
  bool has_residual() const { return !residual_[0].empty(); }
  std::span<float> residual(Slice tensor) { return cut(residual_[now_], tensor); }
  std::span<float> velocity(Slice tensor) { return cut(velocity_[now_], tensor); }
  std::span<std::uint8_t> memory(Slice tensor);
  // What a memory of this tensor means: the codecs, their settings and where they cut. 0 where there is none.
  std::uint64_t memory_kind(Slice tensor) const;
  // What a tensor is owed comes from elsewhere. Parts that keep no residual send it all the same.
  void adopt(Slice tensor, std::span<const float> residual);
  // All residuals and velocities of a bucket with the same tensors in the same places, with the memory that they lie
  // in. No round of either is open.
  void take_over(Buffers& other);

 private:
  struct PartState {
    bool keeps_velocity = false;
    bool carries = false;                  // encode reads and writes residuals
    bool adopted = false;                  // it carries only until what it adopted is sent
    std::vector<std::size_t> memory = {};  // of chunk c within memory_, bytes; chunks + 1 entries
  };
  static std::span<float> cut(std::vector<float>& v, Slice s) {
    return v.empty() ? std::span<float>{} : std::span<float>(v).subspan(s.first, s.n);
  }
  const Piece& piece(int part) const { return pieces_[static_cast<std::size_t>(part)]; }
  PartState& state(int part) { return parts_[static_cast<std::size_t>(part)]; }
  Slice chunk_of(int part, int chunk) const {
    const Piece& p = piece(part);
    const auto c = static_cast<std::size_t>(chunk);
    return {p.values.first + p.starts[c], p.starts[c + 1] - p.starts[c]};
  }
  ByteView at(const std::vector<std::uint8_t>& memory, int part, int chunk) const;
  void carry_debts();
  // Whether a part with a memory is this tensor's.
  bool remembers(std::size_t part, Slice tensor) const;

  const std::vector<Slice> tensors_;
  const std::vector<Piece> pieces_;
  std::vector<PartState> parts_;
  std::size_t values_ = 0;
  std::vector<float> residual_[2], velocity_[2];
  std::vector<std::uint8_t> memory_[2];
  int now_ = 0;  // which of the two is committed
};

}  // namespace tithe::carry
