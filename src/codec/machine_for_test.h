// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tithe/codec.h"

namespace tithe::codec {

// Until it is destroyed, this_machine() is this one: for tests that hold what has no Impl, combine and check, against
// its reference. Not while another thread asks.
class MachineForTest {
 public:
  explicit MachineForTest(Machine machine);
  ~MachineForTest();
  MachineForTest(const MachineForTest&) = delete;
  MachineForTest& operator=(const MachineForTest&) = delete;

 private:
  const Machine machine_;
  const Machine* const before_;
};

}  // namespace tithe::codec
