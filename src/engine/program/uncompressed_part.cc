// SPDX-License-Identifier: Apache-2.0
// A part whose codec sends the memory of its values (Traits::uncompressed). Any range of a payload is the payload of
// the values in that range, so a frame is processed in pieces that fit in the L1 cache: check a piece, and add or store
// it at once. All other steps are inherited from HostPart.
//
// A piece is used before the end of the frame has been checked. If the check fails then, the step fails, and its
// partial output is never read.
#include <algorithm>
#include <array>

#include "codec/shared/common/magnitude.h"
#include "engine/program/unit_state.h"

namespace tithe::engine {
namespace {

class UncompressedPart final : public HostPart {
 public:
  Status merge(const StepContext& w) const override;
  Status store(const StepContext& w) const override;
};

// True if the payload has the size of the whole chunk. Then the frame has no flags: a flagged frame has no payload, and
// no law of these codecs joins payloads.
bool is_whole(const StepContext& w, int frame) {
  return w.n > 0 && w.unit.frames[frame].bytes == kFrameHeaderBytes + sizeof(float) * w.n;
}

// Calls `each` for all pieces of the frame's payload, and meanwhile checks the frame if this step has to.
Status in_pieces(const StepContext& w, int frame, const EachPiece& each) {
  if (w.unchecked(frame)) return w.check_frame(frame, &each);
  const std::size_t bytes = w.unit.frames.payload(frame).size();
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) each(at, std::min(kPieceBytes, bytes - at));
  return {};
}

// With Step::onto, this rank's values are added into the first received frame, which then becomes the outgoing frame.
// The order of two operands does not change the bits of a sum, so the result is that of the sum law. Piece by piece:
// check the received frame if it is unchecked, add, and compute the checksum of the outgoing frame.
Status UncompressedPart::merge(const StepContext& w) const {
  if (!w.step.onto) return HostPart::merge(w);
  const UnitState& unit = w.unit;
  const std::span<const int> frames = w.frames();
  const bool at_once = w.unchecked(frames[0]) && is_whole(w, frames[0]);
  const std::span<const int> others = frames.subspan(at_once ? 1 : 0);
  TITHE_TRY(w.check_frames(others));
  if (w.meets_nonfinite(others)) return at_once ? w.check_frame(frames[0]) : Status{};
  for (const int f : others) TITHE_TRY(w.sound(f));

  const Bytes acc = unit.frames.payload(frames[0]);
  const auto own_at = static_cast<std::size_t>(std::max(w.step.before, 1));
  const EncodeInput in = w.input();
  const Impl& impl = *w.codec.impl;
  const Call c = w.call();
  FrameChecksum frame_checksum(w.header({.bytes = acc.size()}),
                               unit.member.tags == nullptr ? std::nullopt : std::optional(w.step.cover));
  Status status;
  alignas(64) std::array<std::uint8_t, kPieceBytes> room;
  const auto add = [&](std::size_t at, std::size_t bytes) {
    if (!status.ok()) return;
    const Bytes sum = acc.subspan(at, bytes);
    const std::size_t first = at / sizeof(float), n = bytes / sizeof(float);
    ByteView own(reinterpret_cast<const std::uint8_t*>(in.grad + first), bytes);
    if (in.residual != nullptr) {
      float* const out = in.residual_out == nullptr ? nullptr : in.residual_out + first;
      status = impl.encode(c, {in.grad + first, in.residual + first, out, n}, room).status();
      own = ByteView(room).first(bytes);
    }
    const auto add_one = [&](ByteView piece) {
      const Result<Combined> done = impl.combine(c, n, sum, piece, nullptr);
      if (!done.ok()) status = done.status();
      if (done.ok() && !done->finite) w.chunk.poisoned = true;
    };
    for (std::size_t k = 0; k < frames.size() && status.ok(); ++k) {
      if (k > 0) add_one(unit.frames.payload(frames[k]).subspan(at, bytes));
      if (k + 1 == own_at) add_one(own);
    }
    frame_checksum.add(sum);
  };
  TITHE_TRY(in_pieces(w, frames[0], std::ref(add)));
  if (!status.ok()) return w.ours(status);
  w.chunk.own_bytes = acc.size();
  w.chunk.present = true;
  if (!w.chunk.poisoned) w.chunk.checksum = frame_checksum.checksum();
  return {};
}

// One frame with the payload of the whole chunk is the result under every law.
Status UncompressedPart::store(const StepContext& w) const {
  const Frames& frames = w.unit.frames;
  const int frame = w.frames()[0];
  if (w.frames().size() > 1 || !w.last_phase || w.chunk.poisoned || !is_whole(w, frame))
    return HostPart::store(w);
  const Call c = w.call();
  Status status;
  const auto write = [&](std::size_t at, std::size_t bytes) {
    const ByteView piece = frames.payload(frame).subspan(at, bytes);
    const std::span<float> out = w.values().subspan(at / sizeof(float), bytes / sizeof(float));
    if (status.ok()) status = w.codec.impl->decode(c, {&piece, 1}, {.divide = w.unit.divide}, out);
    if (status.ok()) w.see_largest(codec::largest_magnitude(out));
  };
  TITHE_TRY(in_pieces(w, frame, std::ref(write)));
  return blame(status, frames.maker(frame));
}

}  // namespace

const PartRunner& uncompressed_part() {
  static const UncompressedPart part;
  return part;
}

}  // namespace tithe::engine
