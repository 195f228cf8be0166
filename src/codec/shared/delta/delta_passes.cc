// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/delta/delta_passes.h"

namespace tithe::delta {

std::uint64_t encode_entry(std::uint32_t frequency, std::uint32_t start) {
  // 2^(s - 1) < f <= 2^s. The reciprocal exceeds 2^(31 + s) / f by e / f with e < f, so q exceeds x / f by less than
  // (f - 1) / 2^(10 + s), which is below 1 / f.
  const auto s = static_cast<unsigned>(std::bit_width(frequency - 1));
  const bool one = frequency == 1;
  const std::uint64_t reciprocal = one ? ~0U : ((std::uint64_t{1} << (31 + s)) + frequency - 1) / frequency;
  const std::uint32_t add = one ? start + kScale - 1 : start, shift = one ? 0 : s - 1;
  return (kScale - frequency) | add << 10 | shift << 21 | reciprocal << 32;
}

namespace {

void model(const Exponents& exponents, const std::uint16_t* before, const std::uint16_t* now, std::size_t n,
           Context* contexts, BitWriter& extra) {
  for (std::size_t i = 0; i < n; ++i) {
    const Symbol of = symbol_of(zigzag(before[i], now[i]));
    contexts[i] = static_cast<Context>(exponents.class_of(before[i]) << kSymbolBits | of.symbol);
    if (of.extra_bits != 0) extra.put(of.extra, of.extra_bits);
  }
}

std::uint16_t* code(const EncodeTable& table, const Context* contexts, std::size_t n, States& states,
                    std::uint16_t* unit) {
  for (std::size_t i = n; i-- > 0;) {
    const std::uint64_t entry = table[contexts[i]];
    const auto rest = static_cast<std::uint32_t>(entry);
    const std::uint32_t less = rest & (kScale - 1);
    std::uint32_t x = states[i % kStates];
    if (x >> kFullBits >= kScale - less) {
      *--unit = static_cast<std::uint16_t>(x);
      x >>= 16;
    }
    const auto q = static_cast<std::uint32_t>(x * (entry >> 32) >> 32) >> (rest >> 21);
    states[i % kStates] = x + q * less + (rest >> 10 & 0x7ff);
  }
  return unit;
}

std::size_t decode(const DecodeTables& tables, const Exponents& exponents, const std::uint16_t* before,
                   std::size_t n, States& states, Units& units, std::uint16_t* symbols) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t x = states[i % kStates];
    const std::uint32_t e = tables[exponents.class_of(before[i])][x & (kScale - 1)];
    symbols[i] = static_cast<std::uint16_t>(e >> 16 & kNoSymbol);
    x = (e & 0xffff) * (x >> kScaleBits) + (e >> 22);
    if (x < kMinState && units.at != units.end) {
      x = x << 16 | wire::get<std::uint16_t>(units.at);
      units.at += 2;
    }
    states[i % kStates] = x;
  }
  return n;
}

bool move(const std::uint16_t* before, std::uint16_t* symbols, std::size_t n, BitReader& extra,
          std::uint16_t* now) {
  for (std::size_t i = 0; i < n; ++i) {
    const unsigned symbol = symbols[i];
    if (symbol >= kSymbols) return false;
    now[i] = moved(before[i], min_of_symbol(symbol) + extra.read(extra_bits_of(symbol)));
  }
  return true;
}

}  // namespace

const Passes kReference = {.model = model, .code = code, .decode = decode, .move = move};

}  // namespace tithe::delta
