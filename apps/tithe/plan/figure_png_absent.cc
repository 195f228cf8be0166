// SPDX-License-Identifier: Apache-2.0
// Instead of figure_png.cc, in builds without Cairo.
#include "figure.h"

namespace tithe::cli {

bool can_png() { return false; }

Result<std::vector<std::uint8_t>> to_png(const Figure&) {
  return Status(
      Code::kUnsupported,
      "this build draws no PNG: install Cairo (Debian: libcairo2-dev; tools/setup.sh build) and build "
      "tithe again, or ask for --html");
}

}  // namespace tithe::cli
