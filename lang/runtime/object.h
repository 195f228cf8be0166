// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface between a compiled program and the library: plain structs and C functions, so the compiler of the
// user's machine may differ from the library's. prelude_passes.h repeats it in the generated text.
//
//   key   identifies the text, tithe's version and the interface; an object with another key is not used
#include <cstddef>
#include <cstdint>

namespace tithe::lang {

inline constexpr std::uint32_t kObjectInterface = 4;

struct ObjectCall {
  const double* settings;
  std::uint64_t n;
  std::uint64_t key;           // of this rank's random draws
  std::uint64_t shared_key;    // of the draws that all ranks share
  std::uint64_t block;         // values per block; 0: one block of all values
  const std::uint32_t* known;  // per item that is sent once and follows from the settings: its bits
  bool asks_for_residual;      // prefetch the residual too, not only the gradient
  // ---- For programs of several phases
  // The previous phase's items (context.h): per item one number, one number per block, or one number per value, as
  // bits; nullptr if nothing reads it.
  const std::uint32_t* const* agreed;
  std::uint32_t agreed_ranks;  // number of ranks in the previous phase's sum
  std::uint32_t max_ranks;     // maximum number of ranks in a payload
  // Int fields (int_sum/int_fields.h): their width in this call, and the library's kernels. `first` is a multiple of
  // 16.
  unsigned field_bits;
  void (*pack)(const std::uint32_t* numbers, std::size_t first, std::size_t count, unsigned bits,
               std::uint8_t* payload);
  void (*unpack)(const std::uint8_t* payload, std::size_t first, std::size_t count, unsigned bits,
                 std::uint32_t* numbers);
};

// The result of encode.
struct ObjectAnswer {
  std::uint32_t finite;  // 0: a value is not finite
  std::uint32_t broken;  // 1 + the item whose `where` the sent values violate; 0: none
  std::uint64_t block;   // the block with the violation
};

// A phase of a program, in one combination of its constants.
struct Object {
  std::uint32_t interface;
  std::uint32_t combination;
  std::uint64_t key;
  void (*encode)(const ObjectCall*, const float* grad, const float* residual, float* left, std::uint8_t* out,
                 ObjectAnswer* answer);
  // Returns 1 if the payload is valid; the caller has checked its size. nullptr for int fields, which the library
  // checks.
  int (*check)(const ObjectCall*, const std::uint8_t* payload);
  void (*decode)(const ObjectCall*, const std::uint8_t* const* payloads, std::size_t count, const float* base,
                 float divide, float* out);  // at least one payload; nullptr unless the last phase
};

}  // namespace tithe::lang
