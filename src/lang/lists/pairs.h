// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs that send pairs, by the kernels that all sparsifiers share, where the program says no more than what these
// do: the values that reach a magnitude, or the largest ones.
//
//   known      abs(x) >= T, with T above 0 or `x != 0 and` in front, where T is known before the values or is
//              sampled_threshold(...); x != 0 with `at most k`. Others are interpreted
//   same       bytes and residuals as the interpreter's
#include "lang/run/interpreter.h"

namespace tithe::lang {

enum class PairsKind : std::uint8_t { kOther, kThreshold, kLargest };
struct PairsPlan {
  PairsKind kind = PairsKind::kOther;
  int least = kNone;  // the threshold's node
};
PairsPlan plan_pairs(const Checked& program);

// The scratch that encode_pairs needs.
std::size_t plain_scratch(const Combination& of, const Settings& settings, std::size_t n);
// Codec::scratch, of a phase that is by_kernels().
std::size_t list_scratch(const Combination& of, const Settings& settings, std::size_t n);

// In plain form; not of kOther. Room and scratch are there.
Result<Encoded> encode_pairs(const Combination& of, const Call& call, const EncodeInput& in, Bytes out);

// Impl's functions. `plain` is encode_pairs of this program.
Result<Encoded> encode_pairs_as(const Combination& of, std::string_view name, const Call& call,
                                const EncodeInput& in, Bytes out,
                                Result<Encoded> (*plain)(const Call&, const EncodeInput&, Bytes));
Status decode_pairs(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::lang
