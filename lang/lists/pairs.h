// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs programs that send pairs with the kernels that all sparsifiers share, if the program's selection is one of
// those that the kernels implement: all values above a magnitude, or the largest values.
//
//   supported  abs(x) >= T with T > 0, or preceded by `x != 0 and`, where T is known before the values or is
//              sampled_threshold(...); x != 0 with `at most k`. Other selections are interpreted
//   equal      bytes and residuals equal the interpreter's
#include "lang/run/interpreter.h"

namespace tithe::lang {

enum class PairsKind : std::uint8_t { kOther, kThreshold, kLargest };
struct PairsPlan {
  PairsKind kind = PairsKind::kOther;
  int least = kNone;  // the node of the threshold
};
PairsPlan plan_pairs(const Checked& program);

// The scratch of encode_pairs.
std::size_t plain_scratch(const Combination& of, const Settings& settings, std::size_t n);
// Codec::scratch, for a phase that is by_kernels().
std::size_t list_scratch(const Combination& of, const Settings& settings, std::size_t n);

// Encodes in plain form; not for kOther. The caller has checked the sizes of `out` and of the scratch.
Result<Encoded> encode_pairs(const Combination& of, const Call& call, const EncodeInput& in, Bytes out);

// Impl's functions. `plain` is encode_pairs for this program.
Result<Encoded> encode_pairs_as(const Combination& of, std::string_view name, const Call& call,
                                const EncodeInput& in, Bytes out,
                                Result<Encoded> (*plain)(const Call&, const EncodeInput&, Bytes));
Status decode_pairs(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::lang
