// SPDX-License-Identifier: Apache-2.0
#pragma once
// The phases of lang/run/indices.h with the kernels that all sparsifiers share; the bytes are equal.
#include "lang/run/interpreter.h"

namespace tithe::lang {

std::size_t indices_scratch(const Combination& of, const Settings& settings, std::size_t n);
Result<Encoded> encode_indices_fast(const Combination& of, std::string_view name, const Call& call,
                                    const EncodeInput& in, Bytes out);
Status decode_values_fast(const Combination& of, std::string_view name, const Call& call,
                          std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::lang
