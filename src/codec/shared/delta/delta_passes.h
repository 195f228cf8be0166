// SPDX-License-Identifier: Apache-2.0
#pragma once
// The passes of delta.h over the values of a chunk: kReference is readable, kSimd writes the same bytes.
//
//   model    weights -> per value a context (exponent class and symbol) and extra bits
//   code     contexts, last first -> states and units of rANS
//   decode   states and units, first first -> symbols
//   move     previous weights, symbols and extra bits -> weights
//
// Invariant of a rANS state x between two symbols: 2^15 <= x < 2^31. Before a symbol of frequency f (of 2^10), x is
// below f * 2^21: the encoder moves the lowest 16 bits of a larger state out as a unit, and the decoder moves them back
// in. Value i uses state i % kStates, so a vector holds neighbouring states.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "codec/shared/delta/delta.h"

namespace tithe::delta {

inline constexpr unsigned kScaleBits = 10, kScale = 1U << kScaleBits;
inline constexpr std::uint32_t kMinState = 1U << 15;
inline constexpr unsigned kFullBits = 31 - kScaleBits;  // x >> kFullBits < f before a symbol of frequency f
inline constexpr std::size_t kStates = 32;
inline constexpr std::size_t kBlock = 2048;  // values whose symbols stay in the cache between two passes
inline constexpr unsigned kClasses = 12;
// Symbols below kDirect are the value; each octave above has two symbols, distinguished by the bit below the highest
// one.
inline constexpr unsigned kDirectBits = 5, kDirect = 1U << kDirectBits;
inline constexpr unsigned kSymbols = kDirect + 2 * (16 - kDirectBits), kSymbolBits = 6;
inline constexpr unsigned kNoSymbol = (1U << kSymbolBits) - 1;

using Context = std::uint16_t;  // class << kSymbolBits | symbol
inline constexpr std::size_t kContexts = std::size_t{kClasses} << kSymbolBits;

// A monotonic map from the bits of a float to a signed number; its own inverse.
constexpr std::int16_t ordered(std::uint16_t bits) {
  const auto v = static_cast<std::int16_t>(bits);
  return static_cast<std::int16_t>(v ^ ((v >> 15) & 0x7fff));
}
constexpr std::uint16_t zigzag(std::uint16_t before, std::uint16_t now) {
  const auto d = static_cast<std::int16_t>(ordered(now) - ordered(before));
  return static_cast<std::uint16_t>((static_cast<std::uint16_t>(d) << 1) ^
                                    static_cast<std::uint16_t>(d >> 15));
}
constexpr std::uint16_t moved(std::uint16_t before, unsigned z) {
  const auto d = static_cast<std::int16_t>((z >> 1) ^ (0U - (z & 1U)));
  return static_cast<std::uint16_t>(ordered(static_cast<std::uint16_t>(ordered(before) + d)));
}

struct Symbol {
  unsigned symbol, extra_bits, extra;
};
constexpr Symbol symbol_of(unsigned z) {
  if (z < kDirect) return {z, 0, 0};
  const unsigned octave = static_cast<unsigned>(std::bit_width(z)) - 1, bits = octave - 1;
  return {kDirect + 2 * (octave - kDirectBits) + (z >> bits & 1U), bits, z & ((1U << bits) - 1)};
}
constexpr unsigned extra_bits_of(unsigned symbol) {
  return symbol < kDirect ? 0 : kDirectBits - 1 + (symbol - kDirect) / 2;
}
constexpr unsigned min_of_symbol(unsigned symbol) {
  return symbol < kDirect ? symbol : (2U | ((symbol - kDirect) & 1U)) << extra_bits_of(symbol);
}

// The exponents of a chunk: `top` and larger ones have class 0.
struct Exponents {
  unsigned shift = 0, mask = 0, top = 0;
  unsigned of(std::uint16_t v) const { return static_cast<unsigned>(v >> shift) & mask; }
  unsigned class_of(std::uint16_t v) const {
    const unsigned e = of(v);
    return e >= top ? 0 : std::min(top - e, kClasses - 1);
  }
};

// Division by a frequency f with a 32-bit reciprocal (Alverson 1991): q = (x * reciprocal >> 32) >> shift is exact for
// x < f * 2^21. f = 1 has no such reciprocal: with 2^32 - 1, q is x - 1, which `add` corrects.
// The next state is x + q * (kScale - f) + add.
// Per context: kScale - f | add << 10 | shift << 21 | reciprocal << 32. One load reads all of them.
using EncodeTable = std::array<std::uint64_t, kContexts>;
std::uint64_t encode_entry(std::uint32_t frequency, std::uint32_t start);

// Per class and slot: f | symbol << 16 | the slot's distance from the symbol's first slot << 22.
using DecodeTables = std::array<std::array<std::uint32_t, kScale>, kClasses>;
constexpr std::uint32_t decode_entry(unsigned frequency, unsigned distance, unsigned symbol) {
  return frequency | symbol << 16 | distance << 22;
}

// Writes bits from the lowest on. put() stores 8 bytes, and the next call overwrites all incomplete bytes.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* at) : at_(at) {}
  void put(unsigned value, unsigned bits) {
    hold_ |= std::uint64_t{value} << held_;
    held_ += bits;
    wire::put(at_, hold_);
    at_ += held_ / 8;
    hold_ >>= held_ / 8 * 8;
    held_ %= 8;
  }
  std::uint8_t* end() const { return at_ + (held_ != 0); }

 private:
  std::uint8_t* at_;
  std::uint64_t hold_ = 0;
  unsigned held_ = 0;
};

class BitReader {
 public:
  BitReader(const std::uint8_t* at, const std::uint8_t* end)
      : at_(at), bits_(8 * static_cast<std::size_t>(end - at)) {}
  // At most 20 bits. Zeros behind the end.
  unsigned read(unsigned bits) {
    std::uint64_t word = 0;
    if (position_ + 64 <= bits_)
      word = wire::get<std::uint64_t>(at_ + position_ / 8);
    else
      for (std::size_t byte = position_ / 8; byte < bits_ / 8; ++byte)
        word |= std::uint64_t{at_[byte]} << 8 * (byte - position_ / 8);
    const auto value = static_cast<unsigned>(word >> position_ % 8) & ((1U << bits) - 1);
    position_ += bits;
    return value;
  }
  // True if exactly all bits were read, and the padding of the last byte is 0.
  bool over() const {
    return position_ <= bits_ && bits_ - position_ < 8 &&
           (position_ % 8 == 0 || at_[position_ / 8] >> position_ % 8 == 0);
  }

 private:
  const std::uint8_t* at_;
  std::size_t bits_, position_ = 0;
};

using States = std::array<std::uint32_t, kStates>;
struct Units {  // of the payload, not aligned
  const std::uint8_t *at, *end;
};

struct Passes {
  void (*model)(const Exponents&, const std::uint16_t* before, const std::uint16_t* now, std::size_t n,
                Context* contexts, BitWriter& extra);
  // Values n - 1 down to 0; value 0 uses state 0. Writes at most n units, and 8 more that mean nothing, downward from
  // `unit`; the lowest one's address.
  std::uint16_t* (*code)(const EncodeTable&, const Context* contexts, std::size_t n, States&,
                         std::uint16_t* unit);
  // Symbols of values from 0 on; value 0 uses state 0. May stop before n, at a multiple of kStates: the number of
  // symbols.
  std::size_t (*decode)(const DecodeTables&, const Exponents&, const std::uint16_t* before, std::size_t n,
                        States&, Units&, std::uint16_t* symbols);
  // `now` may be `before`. Overwrites `symbols`. False: a symbol that does not exist.
  bool (*move)(const std::uint16_t* before, std::uint16_t* symbols, std::size_t n, BitReader& extra,
               std::uint16_t* now);
};
extern const Passes kReference, kSimd;

// encode() and decode() of delta.h by these passes.
std::size_t encode_by(const Passes&, Format format, std::span<const std::uint16_t> before,
                      std::span<const std::uint16_t> now, Bytes out);
Status decode_by(const Passes&, Format format, std::span<const std::uint16_t> before, ByteView payload,
                 std::span<std::uint16_t> now);

}  // namespace tithe::delta
