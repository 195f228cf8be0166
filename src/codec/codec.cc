// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/codec.h"

namespace tithe {

std::string_view name(Law law) {
  static constexpr std::string_view kNames[] = {"decode", "sum", "max", "concat", "leader"};
  return kNames[static_cast<std::size_t>(law)];
}

Settings defaults(const Codec& codec) {
  TITHE_ASSERT(codec.params.size() <= kMaxParams);
  Settings s{.codec = &codec};
  for (std::size_t i = 0; i < codec.params.size(); ++i) s.value[i] = codec.params[i].fallback;
  return s;
}

}  // namespace tithe
