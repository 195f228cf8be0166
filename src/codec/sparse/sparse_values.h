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
//   inceptionn  u8 e | u8 tags[ceil(length / 4)] | the values' bytes  per block, and u32 bytes of the array after all
//          e is the exponent field of the block's largest magnitude; a value over 2^(e - 126), which is below 1, is
//          written as codec/inceptionn writes one (strict, bound 2^-10): by tag 0, 1 or 2 bytes, truncated. So no value
//          is further off than 2^-9 of the block's largest (2^-136 where that is below 2^-127), and what lies below
//          that is 0. Tag k of four is in bits 2k and 2k + 1. The only form whose size depends on the values
// The blocks of 8bit and 4bit follow the largest of 128 neighbours, not of the whole payload: layers differ in scale.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tithe::sparse {

enum class ValueForm : std::uint8_t { kF32, kBF16, kF16, k8Bit, k4Bit, kInceptionn };
inline constexpr std::uint8_t kLastValueForm = 5;
inline constexpr std::uint8_t kLastFixedForm = 4;  // of those whose arrays have one size
inline constexpr std::size_t kValueBlock = 128;

// The least share of the energy of normal floats that each form sends: 1 - error^2, and where up to 127 of a block are
// too small to be sent beside its largest (v < 2^-3 of it with 4bit), the worst that they can make of it; with fp16
// they err by 2^-39 of it. inceptionn: 128 errors of 2^-9 of the largest.
inline constexpr double kKeptEnergy[] = {1, 1 - 0x1p-16, 1 - 0x1.0001p-22, 1 - 0x1p-7, 0.25, 1 - 0x1p-11};

// Bytes of an array of `count` values, with inceptionn the most; where count is a multiple of kValueBlock and the form
// fixed, also where value `count` of a longer one begins.
std::size_t value_bytes(ValueForm form, std::size_t count);

// Writes an array, and returns its end.
std::uint8_t* write_values(ValueForm form, std::span<const float> values, std::uint8_t* out);

// Bytes of the array of `count` values that `area` ends with; more than it has where there is none.
std::size_t array_bytes(ValueForm form, std::span<const std::uint8_t> area, std::size_t count);

// Value j of an array that holds, of a fixed form.
float value_at(ValueForm form, const std::uint8_t* array, std::size_t j);

// The same for out.size() <= kValueBlock values from `first` on, which is a multiple of kValueBlock.
void read_values(ValueForm form, const std::uint8_t* array, std::size_t first, std::span<float> out);

// Reads an array that holds, of any form, in turn.
class ValueReader {
 public:
  ValueReader() = default;
  ValueReader(ValueForm form, const std::uint8_t* array, std::size_t count)
      : form_(form), at_(array), count_(count) {}
  float next();
  // The next ones; after whole blocks, at most kValueBlock.
  void read(std::span<float> out);

 private:
  ValueForm form_ = ValueForm::kF32;
  const std::uint8_t* at_ = nullptr;    // the array; with inceptionn the next value's bytes
  const std::uint8_t* tags_ = nullptr;  // of the block that is being read
  int exponent_ = 0;
  std::size_t count_ = 0;
  std::size_t read_ = 0;
};

// Whether all `count` values of an array can be read; all bits are values of fp32 and bf16.
bool values_hold(ValueForm form, std::span<const std::uint8_t> array, std::size_t count);

}  // namespace tithe::sparse
