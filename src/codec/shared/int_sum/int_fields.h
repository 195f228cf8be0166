// SPDX-License-Identifier: Apache-2.0
#pragma once
// Int fields: integers of a few bits each, several in a 32-bit word, so that adding words adds the integers. A field is
// as wide as the largest sum needs: no carry reaches the next field.
//
// Layout   u16 payloads added | u8 bits of a field, 1 .. 16 | u8 0 | u32 words
//          A word has f = 32 / bits fields. Integers come in groups of 16 f: integer j of a group is in word j mod 16,
//          from bit bits * (j div 16) on. The last group has min(16, its integers) words. Unused bits are 0.
// With this layout, rather than one integer after another, a vector of integers becomes a vector of words for any
// width.
//
// Each payload holds integers from 0 to top. The number of payloads to be added is known: the previous phase counts
// the ranks.
#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "tithe/seam/codec.h"

namespace tithe::int_fields {

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kRow = 16;
inline constexpr unsigned kMaxWorkers = 256;  // a frame has at most this many parts

inline constexpr ParamSpec kWorkers = whole_number(
    {"workers", 16, 1, kMaxWorkers,
     "largest number of ranks; int fields are as wide as the sum over the present ranks requires"});

struct Head {
  unsigned added;
  unsigned bits;
};
inline Head head_of(ByteView payload) { return {wire::get<std::uint16_t>(payload.data()), payload[2]}; }
inline void put_head(std::uint8_t* payload, Head head) {
  wire::put(payload, static_cast<std::uint16_t>(head.added));
  payload[2] = static_cast<std::uint8_t>(head.bits);
  payload[3] = 0;
}

inline unsigned bits_for(unsigned top, unsigned workers) {
  return static_cast<unsigned>(std::bit_width(top * workers));
}
inline unsigned fields(unsigned bits) { return 32 / bits; }
inline std::size_t words(std::size_t n, unsigned bits) {
  const std::size_t group = kRow * fields(bits);
  return n / group * kRow + std::min(kRow, n % group);
}
inline std::size_t bytes(std::size_t n, unsigned bits) { return kHead + 4 * words(n, bits); }

// Where integer i is in a payload.
struct FieldOffset {
  std::size_t byte;
  unsigned shift;
  FieldOffset(std::size_t i, unsigned bits)
      : byte(kHead + 4 * (i / (kRow * fields(bits)) * kRow + i % kRow)),
        shift(bits * static_cast<unsigned>(i / kRow % fields(bits))) {}
};

// Writes integer i. Call it in increasing order of i: the first integer of a word sets the whole word.
inline void put(std::uint8_t* payload, std::size_t i, unsigned bits, std::uint32_t number) {
  const FieldOffset at(i, bits);
  const std::uint32_t before = at.shift == 0 ? 0 : wire::get<std::uint32_t>(payload + at.byte);
  wire::put(payload + at.byte, before | number << at.shift);
}
inline std::uint32_t get(const std::uint8_t* payload, std::size_t i, unsigned bits) {
  const FieldOffset at(i, bits);
  return wire::get<std::uint32_t>(payload + at.byte) >> at.shift & ((1U << bits) - 1);
}

struct Kernels {
  // largest_of over all words.
  std::uint32_t (*largest)(const std::uint8_t* words, std::size_t count, unsigned bits);
  // acc += in
  void (*add)(std::uint8_t* acc, const std::uint8_t* in, std::size_t count);
  // put and get for integers [first, first + count); first is a multiple of 16.
  void (*pack)(const std::uint32_t* numbers, std::size_t first, std::size_t count, unsigned bits,
               std::uint8_t* payload);
  void (*unpack)(const std::uint8_t* payload, std::size_t first, std::size_t count, unsigned bits,
                 std::uint32_t* numbers);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // int_fields_simd.cc

// n integers from 0 to top from each worker, and at most `most` workers. `codec` names the codec in errors.
struct Form {
  std::string_view codec;
  std::size_t n;
  unsigned top;
  unsigned most;
};
Status check(const Kernels& with, const Form& form, ByteView payload);
// Impl::combine: add() for payloads of int fields, count() for the worker count (u16) at the start of a payload of
// maxima. kUnsupported, and nothing is added, if more workers come together than the settings allow.
Status add(const Kernels& with, const Form& form, const Call& call, Bytes acc, ByteView in);
Status count(const Form& form, const Call& call, Bytes acc, ByteView in);

// The largest integer in a word; ~0 if a bit above the last field is set.
inline std::uint32_t largest_of(std::uint32_t word, unsigned bits) {
  std::uint32_t most = 0;
  for (unsigned k = 0; k < fields(bits); ++k) {
    most = std::max(most, word & ((1U << bits) - 1));
    word >>= bits;
  }
  return word == 0 ? most : ~0U;
}

}  // namespace tithe::int_fields
