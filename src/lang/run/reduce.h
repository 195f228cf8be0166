// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reductions: a pass finds one number of all values of a block, whatever the lengths of the runs that it is read in.
//
//   sum    values in the shape of base/fold.h, in pieces of kPiece; the pieces' totals in that shape again. A sum
//          beyond the largest float is held there
//   mean   that sum by the count of values; 0 of none
//   largest, smallest   the first of equals (of +0 and -0, too); what is no number is passed over; 0 of none
//   count, any, all     of conditions
//   tables, and reductions by a function of the program: lang/run/tables.h
#include <optional>

#include "base/fold.h"
#include "lang/run/tables.h"

namespace tithe::lang {

static_assert(kRun % kFoldLanes == 0);

class Reduction {
 public:
  // The next `count` values of the block, from `from` on in the registers; all runs but the last have kRun of them.
  // `from` is 0 for what lang/run/tables.h finds.
  void add(const Registers& registers, int k, std::size_t count, std::size_t from = 0);
  // Writes what was found into the node's register.
  void finish(const Registers& registers, int k);

 private:
  template <typename T>
  void add_sum(const T* v, const std::uint32_t* which, std::size_t count, Fold<T>& piece, Fold<T>& pieces);
  template <typename T>
  void add_ends(const T* v, const std::uint32_t* which, std::size_t count, bool largest, T& best);
  void end_piece(const Registers& registers, int k);

  Fold<float> piece_, pieces_;
  Fold<double> piece64_, pieces64_;
  std::size_t seen_ = 0;   // values
  std::size_t count_ = 0;  // of them those that count
  float best_ = 0;
  double best64_ = 0;
  std::int32_t best_signed_ = 0;
  std::uint32_t best_unsigned_ = 0;
  bool found_ = false;                  // an end
  std::optional<RunningFold> running_;  // of kReduce
  bool any_ = false;
  bool all_ = true;
};

}  // namespace tithe::lang
