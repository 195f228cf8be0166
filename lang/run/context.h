// SPDX-License-Identifier: Apache-2.0
#pragma once
// The items of the previous phase as plain arrays for compiled programs, whatever their coding in the payload.
//
//   once     one number
//   blocks   one number per block, from a table or not
//   values   one number per value; takes 4 bytes per value for the duration of a call
//
// Each number has 32 bits, as in the payload: a float as its bits, a bool as 0 or 1, an int field as the sum. Each
// array has at least one element, so a kernel may read one even if there are no values.
#include <span>

#include "lang/run/call_memory.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

class Agreed {
 public:
  // Reads call.context, which must have been checked. In a first phase there are no arrays. Takes agreed_bytes() of
  // `memory`.
  Agreed(const Combination& of, std::string_view name, const Call& call, std::size_t n, CallMemory& memory);

  // ObjectCall::agreed.
  const std::uint32_t* const* numbers() const { return numbers_.data(); }
  // The number of ranks in a sum of the previous phase.
  unsigned ranks() const { return ranks_; }

 private:
  std::span<std::uint32_t*> numbers_;
  unsigned ranks_ = 1;
};

std::size_t agreed_bytes(const Combination& of, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
