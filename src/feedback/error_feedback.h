// SPDX-License-Identifier: Apache-2.0
#pragma once
// Buffers hold what is kept of one bucket between rounds: residuals, velocities and what codecs remember. All of it
// stands there twice, as the last commit left it and as the open round leaves it.
//
// A part of the bucket goes through them in this order, each round:
//
//   load          the gradient is clipped and gets its momentum          what encode reads as gradient
//   view          gradient and residual of one chunk, as encode sees them
//   settle        after encode: decay forgets, which is booked, masking clears
//   commit        what the round left is what is kept
//   spend         and what it sent is let go of: at once, or when the round cannot be undone any more
//
//   undone   nothing changes before commit(); without it the next round reads what this one read
//   apart    parts may be loaded, and chunks viewed and settled, at the same time
//   by hand  a tensor that shares no part has memory of its own, which other buffers can take over as it is
//   needed   only where a value may be left unsent is there memory for it; what is needed no longer the caller frees
//            (take_spent), because that takes as long as a step may
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "feedback/state_buffer.h"
#include "tithe/seam/spec.h"

namespace tithe::carry {

// A part as the carry needs it: which values, whose they are, and where its chunks begin.
struct Piece {
  Slice values;
  Spec spec;
  std::vector<std::size_t> starts;  // chunk c is [starts[c], starts[c + 1]) of the part's values
  std::optional<Spec> inside = {};  // the other codec, where ranks of one host have one for each other
  std::optional<int> only = {};     // the one chunk that this rank encodes; none: it encodes all
  // True if nothing of a value is left unsent.
  bool lossless() const { return spec.codec->traits.lossless && (!inside || inside->codec->traits.lossless); }
};

class Buffers {
 public:
  // Tensors and pieces lie in order and cover the bucket. `comes`, by tensor: what take_over() will bring, as far as is
  // known; the rest has its memory from the beginning. Empty: nothing comes.
  Buffers(std::vector<Slice> tensors, std::vector<Piece> pieces, std::span<const Own> comes = {});

  // Bytes that buffers of these pieces have, where nothing comes.
  static std::size_t bytes(std::span<const Piece> pieces);

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
  // Returns the sum of what decay has forgotten in the round. for_good: it is spent at once, and will not be undone.
  double commit(bool for_good = true);
  void spend();  // what was adopted, and is sent now, is needed no longer
  void undo();   // what was committed last, and not spent, is the open round's again
  // Between rounds: the copies that the next round writes are the system's for the asking.
  void lend_next();

  // ---- Residuals on a GPU. All that is asked for here brings them home first.
  // Residuals of all tensors that share the part go there, if it keeps any. Where that fails they are here still.
  Status leave(int part, const std::shared_ptr<device::Ferry>& by);
  Status come_home(int part);
  Status come_home();  // all of them
  struct Away {        // as view(); 0: none is kept
    device::Address residual = 0, left = 0;
  };
  Away away(int part, int chunk, bool settles);
  bool carries(int part) const { return parts_[static_cast<std::size_t>(part)].carries; }
  bool reads_alone(int part) const { return parts_[static_cast<std::size_t>(part)].adopted; }
  // Not ok: something that was on a GPU could not be brought home, and what is here in its place means nothing.
  const Status& lost() const { return lost_; }

  // ---- What is kept of one of the tensors, as of the last commit. Empty where nothing is.
  std::span<float> residual(Slice tensor);
  std::span<const float> see_residual(
      Slice tensor);  // of one on a GPU a copy, which is good until the next round
  std::span<float> velocity(Slice tensor) { return cut(&Holding::velocity, tensor); }
  std::span<std::uint8_t> memory(Slice tensor);
  // The meaning of this tensor's memory: the codecs, their settings and where they cut. 0 where there is none.
  std::uint64_t memory_kind(Slice tensor) const;
  // The tensor's residual comes from elsewhere. Parts that keep no residual send it all the same.
  void adopt(Slice tensor, std::span<const float> residual);
  // In chunks that this rank does not encode both copies become the committed one, so that commits leave it as it is.
  // Whoever changes the residual calls it.
  void rest(Slice tensor);

  // ---- Other buffers take over from these. No round of either is open.
  // The copies that take_over() of this tensor would bring.
  Own gives(Slice tensor);
  // The memory of a tensor, which lies at `theirs` in `other`, changes hands with what is in it. `counts`: it is what
  // is kept of the tensor; else its values mean nothing. False, and nothing is done, where the tensor has none of its
  // own on one of the sides.
  bool take_over(Slice tensor, Buffers& other, Slice theirs, bool counts);
  // Memory for all that was to come and did not.
  void complete();

  // Floats that are needed no longer.
  std::vector<LargeFloats> take_spent() { return std::exchange(spent_, {}); }

 private:
  struct PartState {
    bool keeps_velocity = false;
    bool carries = false;                  // encode reads residuals and writes them
    bool adopted = false;                  // it reads them alone, and only until what it adopted is sent
    std::size_t holding = 0;               // its values'
    std::vector<std::size_t> memory = {};  // of chunk c within memory_, bytes; chunks + 1 entries
    std::vector<double> forgotten = {};    // of chunk c in the open round; empty without decay
  };
  void bring_home(Holding& holding);
  Holding* find(Slice tensor);   // nullptr for a tensor without values
  Holding* alone(Slice tensor);  // nullptr where others share it
  std::span<float> cut(Copies Holding::*kept, Slice tensor);
  // From value `first` of the bucket on, one of the part's.
  float* at(Copies Holding::*kept, int which, int part, std::size_t first);
  const Piece& piece(int part) const { return pieces_[static_cast<std::size_t>(part)]; }
  PartState& state(int part) { return parts_[static_cast<std::size_t>(part)]; }
  Slice chunk_of(int part, int chunk) const {
    const Piece& p = piece(part);
    const auto c = static_cast<std::size_t>(chunk);
    return {p.values.first + p.starts[c], p.starts[c + 1] - p.starts[c]};
  }
  ByteView at(const std::vector<std::uint8_t>& memory, int part, int chunk) const;
  // Parts send what this holding is owed of the tensor, whatever their policy.
  void carry_debts(Holding& holding, Slice tensor);
  // True if a part with a memory is this tensor's.
  bool remembers(std::size_t part, Slice tensor) const;

  const std::vector<Slice> tensors_;
  const std::vector<Piece> pieces_;
  std::vector<PartState> parts_;
  std::vector<Holding> holdings_;  // in order
  std::vector<LargeFloats> spent_;
  std::vector<std::uint8_t> memory_[2];
  int now_ = 0;  // which of the two is committed
  Status lost_;
};

}  // namespace tithe::carry
