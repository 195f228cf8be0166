// SPDX-License-Identifier: Apache-2.0
#pragma once
// The values that sparsifiers send, as they are or rounded. What rounding takes away of a finite value is a float, so
// that it stays in the residual whole: value == sent + rest, bit for bit.
//
//   fp32   f32
//   bf16   the upper half of an f32, to nearest even
//   fp16   u16 e | f16[length]            per block of 128 values, the last may be shorter
//          e is the exponent field of the block's largest magnitude. A value is its f16 times
//          2^(max(e, 15) - 141), so the largest lies in [2^14, 2^15): no float is out of range, and what is 2^-38 of
//          the largest still counts.
//   8bit   u16 top | u8 code[length]      per block
//   4bit   u16 top | u4 code[length]      per block; the earlier value in the lower half of a byte
//          level   a magnitude's bits rounded to 8 of exponent and 3 (4bit: 1) of mantissa, half up; at most the
//                  largest that is finite. Eight levels (two) are an octave: a sign and a log scale, as in qtopk.
//          top     the largest level of the block
//          code    sign << 7 (3) | (top - level); with all ones below the sign: 0. So a value that is 127 (7) or more
//                  levels, some 16 (3.5) octaves, below the largest of its block is named, but sent as 0.
//          A value and its level differ by at most one part in 16 (4), half a level.
// The blocks of 8bit and 4bit follow the largest of 128 neighbours, not of the whole payload: layers differ in scale.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tithe::sparse {

enum class ValueForm : std::uint8_t { kF32, kBF16, kF16, k8Bit, k4Bit };
inline constexpr std::uint8_t kLastValueForm = 4;
inline constexpr std::size_t kValueBlock = 128;

// The least share of the energy of normal floats that each form sends: 1 - error^2, and where up to 127 of a block are
// too small to be sent beside its largest (v < 2^-3 of it with 4bit), the worst that they can make of it.
inline constexpr double kKeptEnergy[] = {1, 1 - 0x1p-16, 1 - 0x1p-16, 1 - 0x1p-7, 0.25};

// Bytes of an array of `count` values; where count is a multiple of kValueBlock, also where value `count` of a longer
// one begins.
std::size_t value_bytes(ValueForm form, std::size_t count);

// Writes an array, and returns its end.
std::uint8_t* write_values(ValueForm form, std::span<const float> values, std::uint8_t* out);

// Value j of an array that holds.
float value_at(ValueForm form, const std::uint8_t* array, std::size_t j);

// The same for out.size() <= kValueBlock values from `first` on, which is a multiple of kValueBlock.
void read_values(ValueForm form, const std::uint8_t* array, std::size_t first, std::span<float> out);

// Whether value_at answers every j < count; all bits are values of fp32 and bf16.
bool values_hold(ValueForm form, const std::uint8_t* array, std::size_t count);

}  // namespace tithe::sparse
