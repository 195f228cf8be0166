// SPDX-License-Identifier: Apache-2.0
// The one file of the library that reads the environment (docs/cli.md has the table).
#include <cstdlib>
#include <string_view>

#include "codec/machine_for_test.h"
#include "tithe/codec.h"

namespace tithe {
namespace {
const Machine* in_its_place = nullptr;
}

codec::MachineForTest::MachineForTest(Machine machine) : machine_(machine), before_(in_its_place) {
  in_its_place = &machine_;
}
codec::MachineForTest::~MachineForTest() { in_its_place = before_; }

const Machine& this_machine() {
  static const Machine kMachine = [] {
    Machine m;
    const char* force = std::getenv("TITHE_FORCE_REFERENCE");
    m.simd = force == nullptr || std::string_view(force) != "1";
    return m;
  }();
  return in_its_place != nullptr ? *in_its_place : kMachine;
}

}  // namespace tithe
