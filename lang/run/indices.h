// SPDX-License-Identifier: Apache-2.0
#pragma once
// The phases of programs that send `indices where ...`, chosen by one rank for all, and then `values at indices`
// (codec/shared/sparse/agreed.h). These are the functions of lang/run/interpreter.h for such phases.
#include "codec/shared/sparse/agreed.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

std::size_t indices_bound(const Combination& of, const Settings& settings, std::size_t n);
Status check_indices(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                     ByteView payload);
// For either phase.
Result<Encoded> encode_indices(const Combination& of, std::string_view name, const Call& call,
                               const EncodeInput& in, Bytes out);
Status decode_values(const Combination& of, std::string_view name, const Call& call,
                     std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
Result<Combined> combine_values(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                                Bytes acc, ByteView in, float* residual_out);

// The codec/shared/sparse/agreed.h description of both phases; and a check that a call of the second phase has
// indices.
sparse::Agreed agreed_list(const Combination& of, std::string_view name, const Settings& settings,
                           std::size_t n);
Status check_indices_in_front(const Combination& of, std::string_view name, const Call& call, std::size_t n);

}  // namespace tithe::lang
