// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lanes: whole numbers of a few bits each in words of 32 that add up as words do. Lanes are as wide as the largest
// sum needs, so that none reaches its neighbour.
//
// Layout   u16 payloads added | u8 bits of a lane, 1 .. 16 | u8 0 | u32 words
//          A word has f = 32 / bits lanes. Numbers go in groups of 16 f: number j of a group stands in word j mod 16,
//          from bit bits * (j div 16) on. The last group has as many words as numbers, but not more than 16. Bits of
//          no number are 0.
// Why not number after number: so, a vector of numbers makes a vector of words whatever the width.
//
// Each of the payloads added holds numbers from 0 to top. How many will come together is known beforehand: the phase
// before counts them.
#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "tithe/codec.h"

namespace tithe::int_fields {

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kRow = 16;
inline constexpr unsigned kMostWorkers = 256;  // as many as a frame has parts

inline constexpr ParamSpec kWorkers = {"workers", 16, 1, kMostWorkers,
                                       "most ranks; lanes are as wide as the ranks that are there need"};

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

// Where number i stands.
struct Place {
  std::size_t byte;
  unsigned shift;
  Place(std::size_t i, unsigned bits)
      : byte(kHead + 4 * (i / (kRow * fields(bits)) * kRow + i % kRow)),
        shift(bits * static_cast<unsigned>(i / kRow % fields(bits))) {}
};

// Numbers are put in rising order: the first one of a word makes it.
inline void put(std::uint8_t* payload, std::size_t i, unsigned bits, std::uint32_t number) {
  const Place at(i, bits);
  const std::uint32_t before = at.shift == 0 ? 0 : wire::get<std::uint32_t>(payload + at.byte);
  wire::put(payload + at.byte, before | number << at.shift);
}
inline std::uint32_t get(const std::uint8_t* payload, std::size_t i, unsigned bits) {
  const Place at(i, bits);
  return wire::get<std::uint32_t>(payload + at.byte) >> at.shift & ((1U << bits) - 1);
}

struct Kernels {
  // The largest number of all words; more than any where a bit above the last field is set.
  std::uint32_t (*largest)(const std::uint8_t* words, std::size_t count, unsigned bits);
  // acc += in
  void (*add)(std::uint8_t* acc, const std::uint8_t* in, std::size_t count);
  // Numbers [first, first + count), first a multiple of 16, as put and get do them.
  void (*pack)(const std::uint32_t* numbers, std::size_t first, std::size_t count, unsigned bits,
               std::uint8_t* payload);
  void (*unpack)(const std::uint8_t* payload, std::size_t first, std::size_t count, unsigned bits,
                 std::uint32_t* numbers);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // int_fields_simd.cc

// n numbers of top at most from each of at most `most` workers.
struct Form {
  std::string_view codec;
  std::size_t n;
  unsigned top;
  unsigned most;
};
Status check(const Kernels& with, const Form& form, ByteView payload);
// Impl::combine of lanes, and of a payload that begins with the number of workers whose maxima follow. kUnsupported,
// and nothing is added, where more come together than the lanes are made for.
Status add(const Kernels& with, const Form& form, const Call& call, Bytes acc, ByteView in);
Status count(const Form& form, const Call& call, Bytes acc, ByteView in);

// The largest number of a word; more than any where a bit above the last lane is set.
inline std::uint32_t largest_of(std::uint32_t word, unsigned bits) {
  std::uint32_t most = 0;
  for (unsigned k = 0; k < fields(bits); ++k) {
    most = std::max(most, word & ((1U << bits) - 1));
    word >>= bits;
  }
  return word == 0 ? most : ~0U;
}

}  // namespace tithe::int_fields
