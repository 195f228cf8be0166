// SPDX-License-Identifier: Apache-2.0
// Payload bytes of every codec against sizes.csv, which detects changes of formats and defaults.
// TITHE_REWRITE_GOLDEN=1 rewrites the table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"

namespace tithe {
namespace {

std::vector<float> values(std::size_t n) {
  std::vector<float> v(n);
  for (std::uint32_t i = 0; i < n; ++i)
    v[i] = static_cast<float>(static_cast<std::int32_t>(mix32(i + 1))) * 0x1p-31F;
  return v;
}

std::string table() {
  std::ostringstream text;
  text << "codec,values,bound_bytes,payload_bytes\n";
  for (const Codec* codec : all_codecs())
    for (const std::size_t n : {0, 1, 7, 8, 33, 256, 2048, 2049, 4097, 100'003, 1 << 20}) {
      const std::vector<float> grad = values(n);
      Call call;
      call.settings = defaults(*codec);
      const std::size_t room = (codec->scratch(call.settings, n) + 64) / 64 * 64;
      const std::unique_ptr<std::uint8_t, decltype(&std::free)> scratch(
          static_cast<std::uint8_t*>(std::aligned_alloc(64, room)), std::free);
      call.scratch = {scratch.get(), room};
      std::size_t bound = 0, bytes = 0;  // over all phases, with no other worker
      std::vector<std::uint8_t> context, out;
      for (const Phase& phase : codec->phases) {
        std::swap(context, out);
        call.context = context;
        out.assign(phase.bound(call.settings, n), 0);
        bound += out.size();
        Result<Encoded> done =
            codec->best(this_machine()).encode(call, {grad.data(), nullptr, nullptr, n}, out);
        EXPECT_TRUE(done.ok()) << done.status().what();
        out.resize(done.ok() ? done->bytes : 0);
        bytes += out.size();
        ++call.phase;
      }
      text << codec->name << ',' << n << ',' << bound << ',' << bytes << '\n';
    }
  return text.str();
}

TEST(Sizes, MatchTheTable) {
  const std::string path = std::string(TITHE_SOURCE_DIR) + "/tests/golden/sizes.csv";
  const std::string now = table();
  const char* rewrite = std::getenv("TITHE_REWRITE_GOLDEN");
  if (rewrite != nullptr && std::string(rewrite) == "1") std::ofstream(path) << now;
  std::stringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(now, kept.str()) << "TITHE_REWRITE_GOLDEN=1 writes " << path;
}

}  // namespace
}  // namespace tithe
