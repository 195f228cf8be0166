// SPDX-License-Identifier: Apache-2.0
#include "codec/typical.h"

#include <algorithm>
#include <string_view>

namespace tithe::codec {
namespace {

struct Row {
  std::string_view codec;
  std::size_t (*bytes)(const Settings&, std::size_t n);
};
constexpr Row kRows[] = {
#define TITHE_TYPICAL(name) {#name, name##_typical},
#include "codec/typical.def"
#undef TITHE_TYPICAL
};

}  // namespace

std::size_t expected_bytes(const Codec& codec, std::size_t phase, const Settings& settings, std::size_t n) {
  const std::size_t most = codec.phases[phase].bound(settings, n);
  if (phase > 0) return most;
  const auto* row = std::ranges::find(kRows, codec.name, &Row::codec);
  return row == std::end(kRows) ? most : std::min(most, row->bytes(settings, n));
}

bool size_varies(const Codec& codec) {
  return std::ranges::find(kRows, codec.name, &Row::codec) != std::end(kRows) ||
         (codec.program != nullptr && !codec.traits.fixed_size && !codec.traits.adds_transformed);
}

}  // namespace tithe::codec
