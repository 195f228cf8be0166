// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a compiled program and the library say to each other: plain structs and C functions, so that the compiler of a
// user's machine and that of the library need not be one. prelude_passes.h has the same in the generated text.
//
//   key   names the text that it was made of: a compiled program of another text, tithe or interface is not used
#include <cstddef>
#include <cstdint>

namespace tithe::lang {

inline constexpr std::uint32_t kObjectInterface = 4;

struct ObjectCall {
  const double* settings;
  std::uint64_t n;
  std::uint64_t key;           // of this rank's draws
  std::uint64_t shared_key;    // of all ranks' draws
  std::uint64_t block;         // values of a block; 0: all
  const std::uint32_t* known;  // of each item that is sent once and follows from the settings: its bits
  bool asks_for_residual;  // memory is asked for the residual ahead of time, and not for the gradient alone
  // ---- Of programs of several phases
  // What the phase in front agreed on (context.h): of each of its items the bits of one number, of one for each
  // block, or of one for each value; nullptr where nothing reads them.
  const std::uint32_t* const* agreed;
  std::uint32_t agreed_ranks;  // that what was summed there is of
  std::uint32_t most_ranks;    // that a payload may count
  // Int fields (int_sum/int_fields.h): their bits in this call, and the library's kernels. `first` is a multiple
  // of 16.
  unsigned field_bits;
  void (*pack)(const std::uint32_t* numbers, std::size_t first, std::size_t count, unsigned bits,
               std::uint8_t* payload);
  void (*unpack)(const std::uint8_t* payload, std::size_t first, std::size_t count, unsigned bits,
                 std::uint32_t* numbers);
};

// What encode has to tell.
struct ObjectAnswer {
  std::uint32_t finite;  // 0: something is not
  std::uint32_t broken;  // 1 + the item whose `where` does not hold of what would be sent; 0: all hold
  std::uint64_t block;   // in which
};

// A phase of a program, in one combination of its constants.
struct Object {
  std::uint32_t interface;
  std::uint32_t combination;
  std::uint64_t key;
  void (*encode)(const ObjectCall*, const float* grad, const float* residual, float* left, std::uint8_t* out,
                 ObjectAnswer* answer);
  // 1: in order; the size is the caller's. nullptr: payloads of int fields, which the library checks
  int (*check)(const ObjectCall*, const std::uint8_t* payload);
  void (*decode)(const ObjectCall*, const std::uint8_t* const* payloads, std::size_t count, const float* base,
                 float divide, float* out);  // one payload or more; nullptr: only the last phase decodes
};

}  // namespace tithe::lang
