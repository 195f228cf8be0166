// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reductions over a block's values. The result does not depend on the lengths of the runs in which the values arrive.
//
//   sum    values in the order of base/fold.h, in pieces of kPiece; the pieces' totals in the same order again. The
//          result is limited to the largest float
//   mean   that sum divided by the count; 0 for no values
//   largest, smallest   the first of equal values (+0 and -0 are equal); NaN is skipped; 0 for no values
//   count, any, all     over conditions
//   tables, and reductions with a function of the program: lang/run/tables.h
#include <optional>
#include <tuple>

#include "base/fold.h"
#include "lang/run/tables.h"

namespace tithe::lang {

static_assert(kRun % kFoldLanes == 0);

class Reduction {
 public:
  // Adds the next `count` values of the block, which start at `from` in the registers. All runs but the last have
  // kRun values. For the operations of lang/run/tables.h, `from` must be 0.
  void add(const Registers& registers, int k, std::size_t count, std::size_t from = 0);
  // Writes the result to the node's register.
  void finish(const Registers& registers, int k);

 private:
  template <typename T>
  void add_ends(const T* v, const std::uint32_t* which, std::size_t count, bool largest, T& best);
  void end_piece(const Registers& registers, int k);

  Fold<float> piece_, pieces_;
  Fold<double> piece64_, pieces64_;
  std::size_t seen_ = 0;                                           // values added
  std::size_t count_ = 0;                                          // values for which the condition held
  std::tuple<float, double, std::int32_t, std::uint32_t> best_{};  // the element of the values' type
  bool found_ = false;                                             // best_ is valid
  std::optional<RunningFold> running_;                             // for kReduce
  bool any_ = false;
  bool all_ = true;
};

}  // namespace tithe::lang
