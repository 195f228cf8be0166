// SPDX-License-Identifier: Apache-2.0
#include "feedback/masks.h"

#include <gtest/gtest.h>

#include <vector>

#include "tithe/seam/catalogue.h"

namespace tithe::feedback {
namespace {

// Masking must decode packed indices: it must not read a packed payload as a plain one.
TEST(MaskVelocity, PackedPayloads) {
  for (const char* text :
       {"topk:ratio=0.1", "topk:ratio=0.1,values=bf16", "topk:ratio=0.1,indices=delta",
        "topk:ratio=0.1,values=bf16,indices=delta", "topk:ratio=0.1,values=8bit,indices=auto",
        "topk:ratio=0.1,values=4bit,indices=bitmap"}) {
    SCOPED_TRACE(text);
    const Result<Spec> spec = parse_spec(text);
    ASSERT_TRUE(spec.ok());
    const Codec& codec = *spec->codec;
    constexpr std::size_t kN = 1000;
    std::vector<float> grad(kN);
    for (std::size_t i = 0; i < kN; ++i) grad[i] = static_cast<float>(i * 7919 % kN + 1);
    const Call call{.settings = spec->settings};
    std::vector<std::uint8_t> payload(codec.phases[0].bound(call.settings, kN));
    const auto sent = codec.reference().encode(call, {grad.data(), nullptr, nullptr, kN}, payload);
    ASSERT_TRUE(sent.ok()) << sent.status().what();
    payload.resize(sent->bytes);

    std::vector<float> velocity(kN, 1.0F), values(kN);
    mask_velocity(codec.reference(), payload, velocity.data());
    const ByteView view = payload;
    ASSERT_TRUE(codec.reference().decode(call, {&view, 1}, {}, values).ok());
    std::size_t masked = 0;
    for (std::size_t i = 0; i < kN; ++i) {
      EXPECT_EQ(velocity[i] == 0.0F, values[i] != 0.0F) << i;
      masked += velocity[i] == 0.0F;
    }
    EXPECT_EQ(masked, kN / 10);
  }
}

}  // namespace
}  // namespace tithe::feedback
