// SPDX-License-Identifier: Apache-2.0
#include "one_shot.h"

#include <fmt/format.h>

#include <cmath>

#include "base/finite.h"
#include "tithe/seam/catalogue.h"

namespace tithe::cli {
namespace {

// The settings under which the longest payload of n values can be written: whatever was written under others passes
// their check (docs/format.md: no parameter is needed to read a payload).
Settings widest(const Codec& codec, std::size_t n) {
  Settings best = defaults(codec);
  for (std::size_t i = 0; i < codec.params.size(); ++i) {
    for (const double end : {codec.params[i].low, codec.params[i].high}) {
      Settings other = best;
      other.value[i] = end;
      if (codec.phases[0].bound(other, n) > codec.phases[0].bound(best, n)) best = other;
    }
  }
  return best;
}

}  // namespace

Result<Lossy> encode_once(const Spec& spec, std::span<const float> values, std::uint64_t seed) {
  prepare(spec);
  const Codec& codec = *spec.codec;
  Lossy result{std::vector<std::uint8_t>(codec.phases[0].bound(spec.settings, values.size())),
               std::vector<float>(values.size())};
  const Scratch scratch(codec.scratch(spec.settings, values.size()));
  Call call;
  call.settings = spec.settings;
  call.seed = call.shared_seed = seed;
  call.scratch = scratch.all();
  const Carry carry{values.data(), nullptr, result.left.data(), values.size()};
  Result<Encoded> encoded = codec.best(this_machine()).encode(call, carry, result.payload);
  if (!encoded.ok()) return encoded.status();
  if (!encoded->finite) {
    std::size_t i = 0;
    while (i < values.size() && is_finite(values[i])) ++i;
    return Status(Code::kInvalid,
                  fmt::format("value {} is {}: only finite values can be encoded", i, values[i]));
  }
  result.payload.resize(encoded->bytes);
  return result;
}

Result<std::vector<float>> decode_once(const Codec& codec, std::span<const ByteView> payloads,
                                       std::size_t n) {
  Call call;
  call.settings = widest(codec, n);
  const Impl& impl = codec.best(this_machine());
  for (const ByteView payload : payloads) TITHE_TRY(impl.check(call, n, payload));
  const Scratch scratch(codec.scratch(call.settings, n));
  call.scratch = scratch.all();
  std::vector<float> values(n);
  TITHE_TRY(impl.decode(call, payloads, {}, values));
  return values;
}

double norm(std::span<const float> a) {
  double squares = 0;
  for (const float v : a) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

}  // namespace tithe::cli
