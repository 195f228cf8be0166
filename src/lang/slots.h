// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of tithe/codec.h's seam are plain ones: told settings, values and payloads, but not whose they are. So
// there are kSlots sets of them, each of which serves the program in its slot.
//
// A slot is taken before its functions are given to anybody, and given back when nobody has them any more.
#include <array>

#include "lang/front/phases.h"
#include "tithe/codec.h"

namespace tithe::lang {

struct LoadedProgram;

inline constexpr std::size_t kSlots = 64;

struct SlotFunctions {
  std::array<std::size_t (*)(const Settings&, std::size_t n), kMostPhases> bound;
  double (*contraction)(const Settings&, std::size_t n);
  std::size_t (*scratch)(const Settings&, std::size_t n);
  Result<Encoded> (*encode)(const Call&, const Carry&, Bytes out);
  Status (*decode)(const Call&, std::span<const ByteView> payloads, const Merge&, std::span<float> out);
  Status (*check)(const Call&, std::size_t n, ByteView payload);
  Result<Combined> (*combine)(const Call&, std::size_t n, Bytes acc, ByteView in, float* residual_out);
  // The same, compiled where that was prepared (lang/cpp/compiled.h).
  Result<Encoded> (*encode_compiled)(const Call&, const Carry&, Bytes out);
  Status (*decode_compiled)(const Call&, std::span<const ByteView> payloads, const Merge&,
                            std::span<float> out);
  Status (*check_compiled)(const Call&, std::size_t n, ByteView payload);
  Result<Combined> (*combine_compiled)(const Call&, std::size_t n, Bytes acc, ByteView in,
                                       float* residual_out);
};

// nullptr: all slots are taken. Safe from any thread.
const SlotFunctions* take_slot(const LoadedProgram& program);
void give_back_slot(const LoadedProgram& program);

}  // namespace tithe::lang
