// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payload that all sparsifiers share: some values sent whole, each with its place.
//
//   u32 count | u32 index[count] | f32 value[count]      little-endian, no alignment
//
//   sorted    indices strictly increase and lie below n: one pass over the output, no value twice
//   merged    out[i] = (base[i] + p0[i] + p1[i] + ...) / divide in the payloads' order; an index that
//             a payload does not name adds nothing to the value there
//   checked   decode writes nothing unless every payload passed check()
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "tithe/codec.h"

namespace tithe::sparse {

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kMaxValues = 0xffffffffU;  // places are u32

constexpr std::size_t bytes(std::size_t count) { return kHead + 8 * count; }

// How many values `ratio` of n are: at least one, at most all.
std::size_t count_of(double ratio, std::size_t n);

// |v| as an integer: same order as the magnitudes, NaN above Inf above every finite value.
inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }
inline constexpr std::uint32_t kFirstNonFinite = 0x7f800000U;  // magnitudes from here on are Inf and NaN

// A payload that passed check(), to be read.
class Pairs {
 public:
  explicit Pairs(ByteView payload) : p_(payload.data()), count_(wire::get<std::uint32_t>(p_)) {}
  std::size_t count() const { return count_; }
  std::uint32_t index(std::size_t j) const { return wire::get<std::uint32_t>(p_ + kHead + 4 * j); }
  float value(std::size_t j) const { return wire::get<float>(p_ + kHead + 4 * (count_ + j)); }
  const std::uint8_t* indices() const { return p_ + kHead; }
  const std::uint8_t* values() const { return p_ + kHead + 4 * std::size_t{count_}; }

 private:
  const std::uint8_t* p_;
  std::uint32_t count_;
};

// Calls sent(index) for every value that a payload carries, in increasing order: what momentum masking clears.
template <typename Sent>
void for_each_sent(ByteView payload, Sent sent) {
  const Pairs pairs(payload);
  for (std::size_t j = 0; j < pairs.count(); ++j) sent(std::size_t{pairs.index(j)});
}

// Whether `payload` holds at most `most` pairs for n values, in order. kCorrupt otherwise.
Status check(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// kUnsupported where an index could not name every value.
Status check_values(std::string_view codec, std::size_t n);

// Merges checked payloads: the reference payload after payload, the fast form block after block of the output. Both
// add to each value in the payloads' order, so the bits are equal.
void decode_ref(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
void decode_fast(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::sparse
