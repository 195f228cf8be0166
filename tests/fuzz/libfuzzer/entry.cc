// SPDX-License-Identifier: Apache-2.0
// One binary per target for libFuzzer: TITHE_FUZZ_TARGET names the target. `fuzz_frame corpus_folder
// -max_total_time=60`. With TITHE_FUZZ_SEEDS=folder the target's own seeds are written there first, so that they can be
// a corpus too (see tools/fuzz_all.sh).
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fuzz/targets.h"

namespace {

const tithe::fuzz::Target& target() {
  static const tithe::fuzz::Target* const kTarget = tithe::fuzz::find_target(TITHE_FUZZ_TARGET);
  return *kTarget;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* folder = std::getenv("TITHE_FUZZ_SEEDS")) {
    std::size_t number = 0;
    for (const tithe::fuzz::Input& seed : target().seeds) {
      std::ofstream file(std::filesystem::path(folder) / ("seed" + std::to_string(number++)),
                         std::ios::binary);
      file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
      if (!file) tithe::fuzz::fail(std::string("cannot write seeds to ") + folder);
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target().run({data, size});
  return 0;
}
