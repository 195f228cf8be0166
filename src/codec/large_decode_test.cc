// SPDX-License-Identifier: Apache-2.0
// Results that are larger than the caches may be written past them; the values must be those of the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"

namespace tithe {
namespace {

TEST(LargeDecode, NonTemporalStoresEqualTheReference) {
  constexpr std::size_t kN = (std::size_t{1} << 22) + 37;  // 16 MiB and a little
  std::vector<float> grad(kN);
  for (std::size_t i = 0; i < kN; ++i)
    grad[i] = static_cast<float>(static_cast<std::int32_t>(mix32(static_cast<std::uint32_t>(i)))) * 0x1p-35F;
  const auto aligned = [] {
    return std::unique_ptr<float, decltype(&std::free)>(
        static_cast<float*>(std::aligned_alloc(64, (4 * kN + 63) / 64 * 64)), &std::free);
  };
  const auto want = aligned(), got = aligned();
  for (const Codec* codec : all_codecs()) {
    const Impl& best = codec->best(this_machine());
    if (codec->phases.size() != 1 || &best == &codec->reference()) continue;
    Call call;
    call.settings = defaults(*codec);
    std::vector<std::uint8_t> scratch(codec->scratch(call.settings, kN) + 64);
    call.scratch = Bytes(scratch).subspan((64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64);
    std::vector<std::uint8_t> payload(codec->phases[0].bound(call.settings, kN));
    const Result<Encoded> done = best.encode(call, {grad.data(), nullptr, nullptr, kN}, payload);
    ASSERT_TRUE(done.ok()) << codec->name;
    payload.resize(done->bytes);
    const ByteView views[] = {payload, payload};
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}}) {
      const auto some = std::span(views).first(count);
      ASSERT_TRUE(codec->reference().decode(call, some, {.divide = 3}, {want.get(), kN}).ok());
      std::memset(got.get(), 0xff, 4 * kN);
      ASSERT_TRUE(best.decode(call, some, {.divide = 3}, {got.get(), kN}).ok());
      const auto bits = [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      };
      EXPECT_TRUE(std::equal(want.get(), want.get() + kN, got.get(), bits))
          << codec->name << ", " << count << " payloads";
    }
  }
}

}  // namespace
}  // namespace tithe
