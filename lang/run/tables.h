// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of a block (sort, rank, histogram), and reductions with a function of the program.
//
//   sort       by integer keys: a float's bits, mapped so that they increase with the float. -0 sorts before +0, NaN
//              after all values; the sort is stable
//   reduction  sixteen accumulators start at `start`; value i goes to accumulator i mod 16; then halves are combined.
//              With more than kPiece values, the results of the pieces are reduced in the same way
#include <array>
#include <bit>
#include <span>

#include "lang/run/evaluate.h"

namespace tithe::lang {

// Maps the bits of a 4-byte value to its sort key, and back.
inline std::uint32_t key_of(Type type, std::uint32_t bits) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if (type == Type::kU32) return bits;
  if (type == Type::kI32) return bits ^ kSign;
  if ((bits & 0x7fffffffU) > 0x7f800000U) return ~0U;
  return bits ^ ((bits & kSign) != 0 ? ~0U : kSign);
}
inline std::uint32_t value_of(Type type, std::uint32_t key) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if (type == Type::kU32) return key;
  if (type == Type::kI32) return key ^ kSign;
  return key ^ ((key & kSign) != 0 ? kSign : ~0U);
}

// The table already has `seen` values of the block; adds the next `count`.
void add_to_table(const Registers& registers, int k, std::size_t seen, std::size_t count);
void finish_table(const Registers& registers, int k, std::size_t seen);

// The state of a kReduce.
class RunningFold {
 public:
  void add(const Registers& registers, int k, std::size_t count);
  void end_piece(const Registers& registers, int k);
  void finish(const Registers& registers, int k);

 private:
  using Lanes = std::array<std::uint64_t, 16>;
  void begin(const Registers& registers, int k);
  static void apply(const Registers& registers, const Node& node, Lanes& to, const Lanes& with,
                    std::span<const bool> which);
  static std::uint64_t total(const Registers& registers, const Node& node, Lanes lanes);

  bool begun_ = false;
  std::size_t pieces_seen_ = 0;
  std::uint64_t start_ = 0;  // the bits of the start value
  Lanes piece_{}, pieces_{};
};

}  // namespace tithe::lang
