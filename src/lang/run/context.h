// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers that the phase in front agreed on, as a compiled program reads them: plain, whatever they were sent as.
//
//   once     one number
//   blocks   a number of a block, in a table or not: one for each block
//   values   an array: one for each value; memory of 4 bytes each for the time of a call
//
// Each in 32 bits, as it stood in the payload: floats by their bits, truths 0 or 1, int fields as they add up. There is
// room for one at least, so that a kernel may look at one of no values.
#include <span>

#include "lang/run/call_memory.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

class Agreed {
 public:
  // Reads call.context, which has passed its check. A first phase has none. Uses agreed_bytes() of the memory.
  Agreed(const Combination& of, std::string_view name, const Call& call, std::size_t n, CallMemory& memory);

  // ObjectCall::agreed.
  const std::uint32_t* const* numbers() const { return numbers_.data(); }
  // That a sum is of.
  unsigned ranks() const { return ranks_; }

 private:
  std::span<std::uint32_t*> numbers_;
  unsigned ranks_ = 1;
};

std::size_t agreed_bytes(const Combination& of, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
