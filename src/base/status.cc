// SPDX-License-Identifier: Apache-2.0
#include "tithe/status.h"

#include <array>

namespace tithe {

std::string_view name(Code code) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "ok",       "invalid",   "too_small", "unsupported", "corrupt",
      "mismatch", "peer_lost", "timeout",   "io",          "cancelled"};
  return kNames[static_cast<std::size_t>(code)];
}

}  // namespace tithe
