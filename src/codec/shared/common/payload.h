// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by all codecs: the checks at the start of encode and decode, the reference merge, and the rows of
// Codec::impls.
#include <algorithm>
#include <string>

#include "tithe/seam/codec.h"

namespace tithe::codec {

inline Status check_room(std::string_view codec, std::size_t have, std::size_t need) {
  if (have >= need) return {};
  return {Code::kTooSmall, std::string(codec) + ": room for " + std::to_string(have) + " bytes, bound is " +
                               std::to_string(need)};
}

inline Status check_scratch(std::string_view codec, std::size_t have, std::size_t need) {
  if (have >= need) return {};
  return {Code::kTooSmall, std::string(codec) + ": scratch of " + std::to_string(have) + " bytes, needs " +
                               std::to_string(need)};
}

inline Status check_size(std::string_view codec, std::size_t have, std::size_t want) {
  if (have == want) return {};
  return {Code::kCorrupt, std::string(codec) + ": payload of " + std::to_string(have) + " bytes, expected " +
                              std::to_string(want)};
}

// `ranks`: the sum of the rank counts of two payloads that are combined. kCorrupt if it exceeds call.ranks.
inline Status check_ranks(std::string_view codec, const Call& call, std::size_t ranks) {
  if (call.ranks == 0 || ranks <= call.ranks) return {};
  return {Code::kCorrupt, std::string(codec) + ": payloads of " + std::to_string(ranks) + " ranks, at most " +
                              std::to_string(call.ranks) + " are allowed"};
}

using Check = Status (*)(const Call&, std::size_t n, ByteView payload);

// Checks all payloads; call it before anything is written.
inline Status check_all(Check check, const Call& call, std::span<const ByteView> payloads, std::size_t n) {
  for (const ByteView p : payloads) TITHE_TRY(check(call, n, p));
  return {};
}

// One function for both phases of a codec: calls kFirst in phase 0, kSecond in phase 1.
template <auto kFirst, auto kSecond, typename... Args>
auto by_phase(const Call& call, Args... args) {
  return call.phase == 0 ? kFirst(call, args...) : kSecond(call, args...);
}

// Impl::decode: checks all payloads, then calls the kernel, with or without the call.
template <Check kCheck, const auto& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(check_all(kCheck, call, payloads, out.size()));
  if constexpr (requires { kWith.decode(call, payloads, merge, out); })
    kWith.decode(call, payloads, merge, out);
  else
    kWith.decode(payloads, merge, out);
  return {};
}

// Value i of the output, from the sum of the payloads' values.
inline float merged(const Merge& merge, std::size_t i, float sum) {
  if (merge.base) sum = merge.base[i] + sum;
  return merge.divide == 1.0F ? sum : sum / merge.divide;
}

// The merge of values from `first` on.
inline Merge merge_from(const Merge& merge, std::size_t first) {
  return {.base = merge.base ? merge.base + first : nullptr, .divide = merge.divide};
}

// The start and the end of a merge that adds payloads into its output.
inline void begin_sum(const Merge& merge, std::span<float> out) {
  if (merge.base == nullptr)
    std::fill(out.begin(), out.end(), 0.0F);
  else if (merge.base != out.data())
    std::copy_n(merge.base, out.size(), out.begin());
}
inline void end_sum(const Merge& merge, std::span<float> out) {
  if (merge.divide == 1.0F) return;
  for (float& v : out) v /= merge.divide;
}

// The reference merge of values [first, n): base plus the payloads in order, then divided. value(p, i) is value i of
// payload p.
template <typename Value>
void merge_values(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out, Value value,
                  std::size_t first = 0) {
  for (std::size_t i = first; i < out.size(); ++i) {
    float sum = merge.base ? merge.base[i] : 0.0F;
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const float v = value(payloads[p], i);
      sum = (p == 0 && !merge.base) ? v : sum + v;  // a single payload keeps -0
    }
    out[i] = merge.divide == 1.0F ? sum : sum / merge.divide;
  }
}

// Calls pass(payloads, merge, out) for groups of at most `most` payloads; each group after the first adds to the result
// so far.
template <typename Pass>
void merge_in_groups(std::size_t most, std::span<const ByteView> payloads, const Merge& merge,
                     std::span<float> out, Pass pass) {
  Merge step{.base = merge.base};
  for (; payloads.size() > most; payloads = payloads.subspan(most)) {
    pass(payloads.first(most), step, out);
    step.base = out.data();
  }
  step.divide = merge.divide;
  pass(payloads, step, out);
}

inline std::size_t no_scratch(const Settings&, std::size_t) { return 0; }
inline bool always(const Machine&) { return true; }
inline bool with_simd(const Machine& m) { return m.simd; }

// The rows of Codec::impls: an Impl that runs the SIMD kernels, and one that runs the reference kernels.
constexpr Impl simd(Impl impl) {
  impl.name = "simd";
  impl.usable = with_simd;
  return impl;
}
constexpr Impl reference(Impl impl) {
  impl.name = "ref";
  impl.usable = always;
  return impl;
}

}  // namespace tithe::codec
