// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values at indices that all ranks agree on: the indices that one rank names, in a payload of their own, and the array
// of each rank's values at these, which add up. Programs that send `values at indices` run on
// these (docs/guide/language.md).
//
// Layout   indices   write_indices() of codec/shared/sparse/sparse.h; they name the form of the values
//          values    value array (codec/shared/sparse/sparse_values.h), one value for each index
#include "codec/shared/sparse/sparse.h"

namespace tithe::sparse {

// At most `most` indices, whose values are written in form.values. `codec` names the codec in errors.
struct Agreed {
  std::string_view codec;
  Form form;
  std::size_t most;
};

Status check_agreed(const Agreed& of, std::size_t n, ByteView indices);
// Checks an array without its indices, which only decode and combine have: its size must be that of some count of
// values.
Status check_array(const Agreed& of, ByteView array);
// check_array for the count of these indices.
Status check_array_at(const Agreed& of, ByteView indices, ByteView array);

// Sends the values at checked indices; all other values go to the residual.
using SendAt = Result<Encoded> (*)(const Agreed& of, ByteView indices, const EncodeInput& in, Bytes out);
Result<Encoded> send_at_ref(const Agreed& of, ByteView indices, const EncodeInput& in, Bytes out);
Result<Encoded> send_at_simd(const Agreed& of, ByteView indices, const EncodeInput& in, Bytes out);

// As Impl::decode and Impl::combine.
using DecodeAt = Status (*)(const Agreed& of, ByteView indices, std::span<const ByteView> arrays,
                            const Merge& merge, std::span<float> out);
Status decode_at_ref(const Agreed& of, ByteView indices, std::span<const ByteView> arrays, const Merge& merge,
                     std::span<float> out);
Status decode_at_simd(const Agreed& of, ByteView indices, std::span<const ByteView> arrays,
                      const Merge& merge, std::span<float> out);
Result<Combined> add_at(const Agreed& of, ByteView indices, Bytes acc, ByteView in, float* residual_out);

}  // namespace tithe::sparse
