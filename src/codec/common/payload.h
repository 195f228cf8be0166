// SPDX-License-Identifier: Apache-2.0
#pragma once
// What fixed-size codecs share: the checks that stand in front of every encode and decode.
#include <string>

#include "tithe/codec.h"

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

// Ranks that payloads count, of which two come together.
inline Status check_ranks(std::string_view codec, const Call& call, std::size_t ranks) {
  if (call.ranks == 0 || ranks <= call.ranks) return {};
  return {Code::kCorrupt, std::string(codec) + ": payloads that count " + std::to_string(ranks) +
                              " ranks, where " + std::to_string(call.ranks) + " can stand in them"};
}

using Check = Status (*)(const Call&, std::size_t n, ByteView payload);

// Runs check over all payloads before anything is written.
inline Status check_all(Check check, const Call& call, std::span<const ByteView> payloads, std::size_t n) {
  for (const ByteView p : payloads) TITHE_TRY(check(call, n, p));
  return {};
}

// Of two functions the one of the call's phase; an Impl has one for both.
template <auto kFirst, auto kSecond, typename... Args>
auto by_phase(const Call& call, Args... args) {
  return call.phase == 0 ? kFirst(call, args...) : kSecond(call, args...);
}

// The reference merge of values [first, n): sets or adds payload after payload, then divides. `value(p, i)` is
// value i of payload p.
template <typename Value>
void merge_values(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out, Value value,
                  std::size_t first = 0) {
  for (std::size_t i = first; i < out.size(); ++i) {
    float sum = merge.base ? merge.base[i] : 0.0F;
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const float v = value(payloads[p], i);
      sum = (p == 0 && !merge.base) ? v : sum + v;  // -0 survives a lone payload
    }
    out[i] = merge.divide == 1.0F ? sum : sum / merge.divide;
  }
}

// Merges at most `most` payloads at a time; what comes after the first of them adds to the result so far.
// `pass(payloads, merge, out)`.
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

// The rows of Codec::impls: an Impl over the vector kernels, and the same over the reference's.
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
