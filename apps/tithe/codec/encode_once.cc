// SPDX-License-Identifier: Apache-2.0
#include "encode_once.h"

#include <fmt/format.h>

#include <cmath>

#include "base/finite.h"
#include "catalogue/settings.h"
#include "tithe/seam/catalogue.h"

namespace tithe::cli {
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
  const EncodeInput input{values.data(), nullptr, result.left.data(), values.size()};
  Result<Encoded> encoded = codec.best(this_machine()).encode(call, input, result.payload);
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
  const Result<Settings> settings = settings_of(codec, n, payloads);
  if (!settings.ok()) return settings.status();
  Call call;
  call.settings = *settings;
  const Scratch scratch(codec.scratch(call.settings, n));
  call.scratch = scratch.all();
  std::vector<float> values(n);
  TITHE_TRY(codec.best(this_machine()).decode(call, payloads, {}, values));
  return values;
}

double norm(std::span<const float> a) {
  double squares = 0;
  for (const float v : a) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

}  // namespace tithe::cli
