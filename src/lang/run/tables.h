// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of a block (sort, rank, histogram), and reductions by a function of the program: what reduce.h does not
// find with a number or two.
//
//   sort       by keys that are whole numbers: a float's bits, turned so that they rise with it. -0 stands in front of
//              +0, what is no number behind all; equal values in the order of their places
//   reduction  sixteen running values that begin with `start`, value i goes to the one that i mod 16 names, then halves
//              are put together; of more than kPiece values those of each piece, in that shape once more
#include <array>
#include <bit>
#include <span>

#include "lang/run/evaluate.h"

namespace tithe::lang {

// 4-byte values of a type as keys, and back.
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

// `seen` values of the block are in the table already, `count` more come.
void add_to_table(const Registers& registers, int k, std::size_t seen, std::size_t count);
void finish_table(const Registers& registers, int k, std::size_t seen);

// A kReduce at work.
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
  std::uint64_t start_ = 0;  // its bits
  Lanes piece_{}, pieces_{};
};

}  // namespace tithe::lang
