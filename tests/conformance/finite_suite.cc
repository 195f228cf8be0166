// SPDX-License-Identifier: Apache-2.0
// Payloads in which somebody put a NaN or an Inf where a value may be: refused, or they decode to finite values. Dense
// lists of plain floats are the exception that codec.h names, since a look at each value costs a pass over memory.
#include <cmath>
#include <cstring>
#include <set>

#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

using harness::Floats;
using harness::Payload;
using harness::spec_of;

const std::set<std::string, std::less<>> kDense = {"fp32", "bf16", "fp16", "fp8", "inceptionn", "snap"};

TEST(FiniteSuite, APayloadWithANaNIsRefusedOrDecodesToFiniteValues) {
  std::vector<Spec> specs;
  for (const Codec* codec : all_codecs())
    if (codec->phases.size() == 1) specs.push_back({codec, defaults(*codec), {}});
  for (const char* text :
       {"topk:ratio=0.1,values=bf16", "topk:ratio=0.1,values=fp16", "topk:ratio=0.1,values=8bit",
        "topk:ratio=0.1,indices=delta", "dgc:ratio=0.1,values=inceptionn"})
    specs.push_back(spec_of(text));
  constexpr std::size_t kN = 300;
  const Floats grad = harness::bell(kN, 1);
  for (const Spec& spec : specs) {
    const Codec& codec = *spec.codec;
    const Impl& impl = codec.best(this_machine());
    const ScratchForTest scratch(codec, spec.settings, kN);
    Call call{.settings = spec.settings};
    call.scratch = scratch;
    Payload payload(codec.phases[0].bound(spec.settings, kN));
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, nullptr, kN}, payload);
    ASSERT_TRUE(done.ok()) << to_string(spec);
    payload.resize(done->bytes);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < payload.size(); ++at)
      for (const std::uint32_t bits :
           {0x7fc00000U, 0x7f800000U, 0xff800000U, 0x7fc07fc0U, 0x7c007c00U, 0xffffffffU}) {
        Payload damaged = payload;
        std::memcpy(&damaged[at], &bits, std::min(sizeof bits, payload.size() - at));
        if (!impl.check(call, kN, damaged).ok()) continue;
        Floats out(kN);
        const ByteView one(damaged);
        if (!impl.decode(call, {&one, 1}, {}, out).ok()) continue;
        for (const float v : out) wrong += std::isfinite(v) ? 0 : 1;
      }
    EXPECT_EQ(wrong > 0, kDense.contains(codec.name)) << to_string(spec);
  }
}

}  // namespace
}  // namespace tithe::conformance
