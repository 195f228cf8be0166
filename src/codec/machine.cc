// SPDX-License-Identifier: Apache-2.0
// The one file of the library that reads the environment (docs/cli.md has the table).
#include <cstdlib>
#include <string_view>

#include "tithe/codec.h"

namespace tithe {

const Machine& this_machine() {
  static const Machine kMachine = [] {
    Machine m;
    const char* force = std::getenv("TITHE_FORCE_REFERENCE");
    m.simd = force == nullptr || std::string_view(force) != "1";
    return m;
  }();
  return kMachine;
}

}  // namespace tithe
