// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two phases of programs that send `indices where ...`, which one rank names for all, and `values at indices`
// (codec/sparse/agreed.h). Encode, check, decode and combine of lang/interpreter.h for these.
#include "lang/interpreter.h"

namespace tithe::lang {

std::size_t indices_bound(const Combination& of, const Settings& settings, std::size_t n);
std::size_t indices_scratch(const Combination& of, const Settings& settings, std::size_t n);
Status check_indices(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                     ByteView payload);

// Either phase, by the interpreter.
Result<Encoded> encode_indices(const Combination& of, std::string_view name, const Call& call,
                               const Carry& in, Bytes out);
Status decode_values(const Combination& of, std::string_view name, const Call& call,
                     std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
// By the library's kernels; the same bytes.
Result<Encoded> encode_indices_fast(const Combination& of, std::string_view name, const Call& call,
                                    const Carry& in, Bytes out);
Status decode_values_fast(const Combination& of, std::string_view name, const Call& call,
                          std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

Result<Combined> combine_values(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                                Bytes acc, ByteView in, float* residual_out);

}  // namespace tithe::lang
