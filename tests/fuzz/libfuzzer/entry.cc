// SPDX-License-Identifier: Apache-2.0
// One binary per target for libFuzzer: TITHE_FUZZ_TARGET names it. `fuzz_frame corpus_folder -max_total_time=60`.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tithe::fuzz::Target* const kTarget = tithe::fuzz::find_target(TITHE_FUZZ_TARGET);
  kTarget->run({data, size});
  return 0;
}
