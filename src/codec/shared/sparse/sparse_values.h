// SPDX-License-Identifier: Apache-2.0
#pragma once
// The value array of a sparse payload: unrounded or rounded values. The rounding error of a finite value is itself a
// float, so the residual holds it exactly: taken == sent + residual_out, bit for bit.
//
//   fp32   f32
//   bf16   the upper half of an f32, to nearest even
//   fp16   u16 e | f16[length]            per block of 128 values, the last may be shorter
//          e is the exponent field of the block's largest magnitude. A value is its f16 times
//          2^(max(e, 15) - 141). The largest f16 lies in [2^14, 2^15), so no float is out of range, and magnitudes
//          down to 2^-38 of the largest are not lost.
//   8bit   u16 top | u8 code[length]      per block
//   4bit   u16 top | u4 code[length]      per block; the earlier value in the lower half of a byte
//          level   the magnitude's bits rounded half up to 8 bits of exponent and 3 (4bit: 1) of mantissa; at most the
//                  largest finite level. Eight levels (4bit: two) make an octave: a log scale, as in qtopk.
//          top     the largest level of the block
//          code    sign << 7 (4bit: 3) | (top - level); all ones below the sign mean 0. So a value 127 (4bit: 7) or
//                  more levels below the block's top, about 16 (3.5) octaves, keeps its index but is sent as 0.
//          A value and its level differ by at most one part in 16 (4bit: 4), half a level.
//   inceptionn  per block u8 e | u8 tags[ceil(length / 4)] | the values' bytes; after all blocks u32 bytes of the array
//          e is the exponent field of the block's largest magnitude. The quotient value / 2^(e - 126) is below 1 and is
//          written as codec/inceptionn writes a value (strict, bound 2^-10): 0, 1 or 2 bytes by tag, truncated. No
//          value is off by more than 2^-9 of the block's largest (2^-136 if that is below 2^-127); smaller values
//          become 0. Tag k of the four in a byte is in bits 2k and 2k + 1. Only this form has a size that depends on
//          the values.
//   2bit   u16 low | u16 high | u2 code[length]   per block; the earliest value in the lowest bits of a byte
//          Magnitudes below the block's mean are sent as `low`, the others as `high`: two bf16, each the mean of its
//          group, but at most twice the group's smallest magnitude, so that no value is sent as more than twice itself.
//          A `low` below 2^-15 of the group's largest magnitude is 0. Suited to values of similar magnitude, such as a
//          selection.
//          code    sign << 1 | 1 if high
// Each block of 128 values has its own scale because layers differ in scale, and a payload holds values of many
// layers.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tithe::sparse {

enum class ValueForm : std::uint8_t { kF32, kBF16, kF16, k8Bit, k4Bit, kInceptionn, k2Bit };
inline constexpr std::uint8_t kLastValueForm = 6;
// Up to here an array's size depends on its count alone, and sums of arrays may be written as arrays: two magnitudes
// are too few for sums.
inline constexpr std::uint8_t kLastFixedForm = 4;
inline constexpr std::size_t kValueBlock = 128;

// The minimum share of the energy (sum of squares) of normal floats that each form sends: 1 - error^2. With 8bit and
// 4bit up to 127 values of a block may be too small relative to its largest value to be sent (4bit: below 2^-3 of it);
// the bound is that of the worst case. With fp16 such values have errors of 2^-39 of the largest. inceptionn: 128
// errors of 2^-9 of the largest. 2bit: the sum of the high values is at least the largest value M, and each is sent as
// at least the mean m, reduced by 2^-7: so at least m M of at most 128 m M is sent.
inline constexpr double kKeptEnergy[] = {1,           1 - 0x1p-16, 1 - 0x1.0001p-22, 1 - 0x1p-7, 0.25,
                                         1 - 0x1p-11, 0x1p-8};

// Bytes of an array of `count` values; with inceptionn an upper bound. If the form is fixed and count a multiple of
// kValueBlock, this is also the offset of value `count` in a longer array.
std::size_t value_bytes(ValueForm form, std::size_t count);

// Writes an array and returns its end.
std::uint8_t* write_values(ValueForm form, std::span<const float> values, std::uint8_t* out);

// Bytes of the array of `count` values at the end of `area`; more than area.size() if there is no such array.
std::size_t array_bytes(ValueForm form, std::span<const std::uint8_t> area, std::size_t count);

// Value j of an array of any form but inceptionn that passed values_hold.
float value_at(ValueForm form, const std::uint8_t* array, std::size_t j);

// Reads out.size() values of such an array, from value `first` on; first is a multiple of kValueBlock, and out.size()
// is at most kValueBlock.
void read_values(ValueForm form, const std::uint8_t* array, std::size_t first, std::span<float> out);

// Reads the values of an array of any form in order; the array passed values_hold.
class ValueReader {
 public:
  ValueReader() = default;
  ValueReader(ValueForm form, const std::uint8_t* array, std::size_t count)
      : form_(form), at_(array), count_(count) {}
  float next();
  // The next out.size() <= kValueBlock values; every earlier read was of whole blocks.
  void read(std::span<float> out);

 private:
  ValueForm form_ = ValueForm::kF32;
  const std::uint8_t* at_ = nullptr;    // the array; with inceptionn the bytes of the next value
  const std::uint8_t* tags_ = nullptr;  // tags of the current block
  int exponent_ = 0;
  std::size_t count_ = 0;
  std::size_t read_ = 0;
};

// True if `array` is an array of `count` values that an encoder can have written. For fp32 and bf16 any bits are.
bool values_hold(ValueForm form, std::span<const std::uint8_t> array, std::size_t count);

}  // namespace tithe::sparse
