// SPDX-License-Identifier: Apache-2.0
// Both implementations encode the same seeded values, with and without a residual, and decode five payloads: one rank's
// payload, alternately with a sum of several such payloads if the program sums. The sizes lie around the ends of
// vectors and blocks. The context of a later phase is a payload that the interpreter combines from seeded ranks. All
// values are compared as bits.
#include "lang/run/verify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "base/rng.h"

namespace tithe::lang {

namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

// Kinds: cubic around 0, all magnitudes, ties, signed zeros, subnormals, and outliers near the largest float.
Floats values_of(unsigned kind, std::size_t n, std::uint32_t seed) {
  Floats v(n);
  const std::uint64_t key = rng_key(seed, kind, 0, 0, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t draw = draw32(key, static_cast<std::uint32_t>(i));
    const float even = static_cast<float>(draw >> 8) * 0x1p-23F - 1;
    const float all[kAllKinds] = {even * even * even,
                                  std::ldexp(even, static_cast<int>(draw % 64) - 32),
                                  static_cast<float>(static_cast<int>(draw % 5) - 2) * 0.25F,
                                  draw % 2 == 0 ? 0.0F : -0.0F,
                                  even * 0x1p-130F,
                                  draw % 32 == 0 ? std::copysign(0x1.fffffep126F, even) : even};
    v[i] = all[kind];
  }
  return v;
}

struct Outcome {
  bool ok = false;
  Payload payload;
  Floats left, decoded;
};

// Bitwise comparison.
bool same(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

constexpr std::string_view kName = "self-check";

// A number of ranks and their kind of values: the context of a later phase.
struct RankSet {
  unsigned ranks;
  unsigned kind;
};
std::vector<RankSet> rank_sets(const Combination& of, const Settings& settings) {
  bool counts = false, sums = of.program.adds();
  for (const Combination* c = of.before.get(); c != nullptr; c = c->before.get()) {
    counts = counts || c->program.counts;
    sums = sums || c->program.adds();
  }
  if (of.before == nullptr && !sums) return {{1, 0}};
  constexpr unsigned kMany = 24;  // the field width differs from that of three ranks
  const unsigned most = counts || sums ? std::min(kMany, max_ranks(of, settings)) : 3;
  return {{1, 3}, {std::min(3U, most), 0}, {most, 2}};
}

// The combination of all ranks' payloads of a phase, computed by the interpreter. Empty if these values have no
// payload.
std::optional<Payload> combined(const Combination& of, const Call& call, std::size_t n, const RankSet& who,
                                unsigned kind) {
  constexpr unsigned kApart = 3;  // ranks with different values; further ranks repeat them
  std::vector<Payload> own;
  for (unsigned rank = 0; rank < std::min(who.ranks, kApart); ++rank) {
    const Floats grad = values_of((kind + who.kind + rank) % kAllKinds, n, 3 + rank);
    Payload& payload = own.emplace_back(bound(of, call.settings, n));
    const Result<Encoded> done = encode(of, kName, call, {grad.data(), nullptr, nullptr, n}, payload);
    if (!done.ok() || !done->finite) return {};
    payload.resize(done->bytes);
  }
  Payload all = own[0];
  for (unsigned rank = 1; rank < who.ranks && of.program.law != Law::kLeader; ++rank) {
    const auto done =
        combine(of, kName, call, n, all, own[rank % own.size()], nullptr, int_fields::kReference);
    if (!done.ok() || !done->finite) return {};
  }
  return all;
}

std::optional<Payload> context_of(const Combination& of, const Call& call, std::size_t n, const RankSet& who,
                                  unsigned kind) {
  if (of.before == nullptr) return Payload{};
  Call front = in_front(call);
  const std::optional<Payload> agreed = context_of(*of.before, front, n, who, kind);
  if (!agreed) return {};
  front.context = *agreed;
  return combined(*of.before, front, n, who, kind);
}

// Encodes the values and decodes five payloads. `most` is the payload's maximum size; add() combines one payload with
// those of the other ranks and returns false on failure. Without add, nothing is decoded.
Outcome outcome_of(const Call& call, const Floats& grad, const Floats& before, const VerifiedFunctions& runs,
                   std::size_t most, const std::function<bool(Payload& sum)>& add) {
  Outcome o{.payload = Payload(most), .left = Floats(grad.size()), .decoded = before};
  const bool feedback = grad.size() % 2 == 1;
  const EncodeInput in = {grad.data(), feedback ? before.data() : nullptr, o.left.data(), grad.size()};
  const Result<Encoded> done = runs.encode(kName, call, in, o.payload);
  o.ok = done.ok() && done->finite;
  if (!o.ok) return o;
  o.payload.resize(done->bytes);
  if (!add) return o;
  Payload sum = o.payload;
  o.ok = add(sum);
  const ByteView several[] = {o.payload, sum, o.payload, sum, o.payload};
  o.ok = o.ok && runs.decode(kName, call, several, {.base = feedback ? before.data() : nullptr, .divide = 3},
                             o.decoded)
                     .ok();
  return o;
}

bool same_outcome(const Call& call, std::size_t n, unsigned kind, const VerifiedFunctions& runs,
                  const VerifiedFunctions& reference, std::size_t most,
                  const std::function<bool(Payload& sum)>& add) {
  const Floats grad = values_of(kind, n, 1), before = values_of(kind, n, 2);
  const Outcome want = outcome_of(call, grad, before, reference, most, add);
  const Outcome got = outcome_of(call, grad, before, runs, most, add);
  return got.ok == want.ok && (!want.ok || (got.payload == want.payload && same(got.left, want.left) &&
                                            same(got.decoded, want.decoded)));
}

bool same_outcome(const VerifiedFunctions& runs, const Combination& of, const Call& call, std::size_t n,
                  unsigned kind, unsigned ranks) {
  const VerifiedFunctions interpreter = {
      [&](std::string_view name, const Call& of_phase, const EncodeInput& in, Bytes out) {
        return encode(of, name, of_phase, in, out);
      },
      [&](std::string_view name, const Call& of_phase, std::span<const ByteView> payloads, const Merge& how,
          std::span<float> out) { return decode(of, name, of_phase, payloads, how, out); }};
  const bool decodes = of.program.result != kNone || of.program.sends_pairs;
  const auto add = [&](Payload& sum) {
    const Payload one = sum;
    for (unsigned rank = 1; rank < ranks && of.program.adds(); ++rank)
      if (!combine(of, kName, call, n, sum, one, nullptr, int_fields::kReference).ok()) return false;
    return true;
  };
  return same_outcome(call, n, kind, runs, interpreter, bound(of, call.settings, n),
                      decodes ? std::function<bool(Payload&)>(add) : nullptr);
}

// Sizes around the ends of a vector and of a block of `block` values.
std::array<std::size_t, 9> sizes_of(std::size_t block) {
  return {0, 1, 15, 16, 17, block - 1, block, block + 1, 2 * block + 39};
}
Call call_of(const Settings& settings) {
  return {.settings = settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
}

}  // namespace

bool matches_interpreter(const VerifiedFunctions& runs, const Combination& of, const Settings& settings,
                         unsigned kinds) {
  const std::size_t block = std::min<std::size_t>(of.program.block == 0 ? 1024 : of.program.block, 2048);
  Call call = call_of(settings);
  for (const Combination* c = of.before.get(); c != nullptr; c = c->before.get()) ++call.phase;
  for (unsigned kind = 0; kind < kinds; ++kind)
    for (const std::size_t n : sizes_of(block))
      for (const RankSet& who : rank_sets(of, settings)) {
        const std::optional<Payload> context = context_of(of, call, n, who, kind);
        if (!context) continue;
        call.context = *context;
        if (!same_outcome(runs, of, call, n, kind, who.ranks)) return false;
      }
  return true;
}

bool matches_reference(const VerifiedFunctions& runs, const Codec& codec, const Settings& settings) {
  const Impl& impl = codec.reference();
  const VerifiedFunctions reference = {
      [&](std::string_view, const Call& of_phase, const EncodeInput& in, Bytes out) {
        return impl.encode(of_phase, in, out);
      },
      [&](std::string_view, const Call& of_phase, std::span<const ByteView> payloads, const Merge& how,
          std::span<float> out) { return impl.decode(of_phase, payloads, how, out); }};
  const Call call = call_of(settings);
  for (unsigned kind = 0; kind < kAllKinds; ++kind)
    for (const std::size_t n : sizes_of(1024))
      if (!same_outcome(call, n, kind, runs, reference, codec.phases[0].bound(settings, n),
                        [](Payload&) { return true; }))
        return false;
  return true;
}

}  // namespace tithe::lang
