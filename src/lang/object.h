// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a compiled program and the library say to each other: plain structs and C functions, so that the compiler of a
// user's machine and that of the library need not be one. prelude_passes.cc has the same in the generated text.
//
//   key   names the text that it was made of: a compiled program of another text, tithe or interface is not used
#include <cstddef>
#include <cstdint>

namespace tithe::lang {

inline constexpr std::uint32_t kObjectInterface = 1;

struct ObjectCall {
  const double* settings;
  std::uint64_t n;
  std::uint64_t key;         // of this rank's draws
  std::uint64_t shared_key;  // of all ranks' draws
};

// What encode has to tell.
struct ObjectAnswer {
  std::uint32_t finite;  // 0: something is not
  std::uint32_t broken;  // 1 + the item whose `where` does not hold of what would be sent; 0: all hold
  std::uint64_t block;   // in which
};

// A program in one combination of its constants.
struct Object {
  std::uint32_t interface;
  std::uint32_t combination;
  std::uint64_t key;
  void (*encode)(const ObjectCall*, const float* grad, const float* residual, float* left, std::uint8_t* out,
                 ObjectAnswer* answer);
  int (*check)(const ObjectCall*, const std::uint8_t* payload);  // 1: in order; the size is the caller's
  void (*decode)(const ObjectCall*, const std::uint8_t* const* payloads, std::size_t count, const float* base,
                 float divide, float* out);  // one payload or more
};

}  // namespace tithe::lang
