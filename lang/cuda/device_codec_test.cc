// SPDX-License-Identifier: Apache-2.0
// A codec's own kernels (Codec::kernels), on a driver without a GPU and with NVIDIA's compiler. TITHE_TEST_GPU=real
// uses a real GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "lang/cuda/device_program.h"
#include "support/codec_run.h"
#include "support/gpu/cubin.h"
#include "support/gpu/gpu_values.h"
#include "support/pairs.h"
#include "tithe/seam/catalogue.h"

namespace tithe::lang {
namespace {

// Settings of words: every other one, and all in `make test-full`.
std::vector<Spec> specs_with_kernels() {
  std::vector<Spec> specs;
  for (const Codec* codec : all_codecs()) {
    if (codec->kernels == nullptr) continue;
    std::vector<Settings> all = {defaults(*codec)};
    for (std::size_t k = 0; k < codec->params.size(); ++k) {
      const std::vector<Settings> before = std::exchange(all, {});
      for (const Settings& one : before)
        for (std::size_t word = 0; word < std::max<std::size_t>(codec->params[k].choices.size(), 1); ++word) {
          all.push_back(one);
          if (!codec->params[k].choices.empty()) all.back().value[k] = static_cast<double>(word);
        }
    }
    for (const Settings& settings : all) {
      double words = 0;
      for (std::size_t k = 0; k < codec->params.size(); ++k) words += settings[k];
      if (harness::full_products() || static_cast<int>(words) % 2 == 0)
        specs.push_back({.codec = codec, .settings = settings, .feedback = {}});
    }
  }
  return specs;
}

class CodecKernels : public testing::GpuTest, public ::testing::WithParamInterface<Spec> {};

// The verification on a user's GPU: payloads, residuals, sums of five payloads, for many sizes and kinds of values.
TEST_P(CodecKernels, MatchTheReference) {
  const device::Device device = open();
  const OnDevice got = on_device(device, compiler(), *GetParam().codec, GetParam().settings);
  EXPECT_EQ(got.how, fmt::format("on a GPU, {}, verified against the reference", device.name()));
}

TEST_P(CodecKernels, RefuseNonFiniteValues) {
  const device::Device device = open();
  const Codec& codec = *GetParam().codec;
  const Call call = {.settings = GetParam().settings};
  DeviceLane lane = testing::there(DeviceLane::open(device));
  const auto program = testing::there(DeviceProgram::make(device, compiler(), codec, call.settings));
  for (const std::size_t at : {0, 1500, 2049}) {
    harness::Floats wrong(2050, 0.5F);
    wrong[at] = at == 1500 ? NAN : INFINITY;
    const testing::OnGpu values(lane, wrong);
    const device::Pinned payload = testing::there(device.pinned(program->bound(call.settings, wrong.size())));
    const Result<Encoded> got = program->encode(lane, "test", call, {values.memory.at(), 0, 0, wrong.size()},
                                                {payload.data(), payload.bytes()});
    ASSERT_TRUE(got.ok()) << got.status().what();
    EXPECT_FALSE(got->finite) << at;
  }
}

// No operation rounds otherwise, and no array of a thread is in memory.
TEST_P(CodecKernels, AreAcceptedByNvrtc) {
  const Result<device::Compiler>& nvrtc = testing::nvrtc_here();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().what();
  const int own = GetParam().settings[0] < 2 ? 80 : 90;  // the text does not depend on it
  const std::string text = device_text(*GetParam().codec, GetParam().settings);
  for (const int sm : harness::full_products() ? std::vector{80, 90} : std::vector{own}) {
    const Result<std::string> ptx = nvrtc->ptx(text, sm);
    ASSERT_TRUE(ptx.ok()) << ptx.status().what();
    EXPECT_NE(ptx->find(".entry tithe_plan_encode"), std::string::npos);
    for (const char* found : {"fma.rn", "mad.rn", ".ftz", ".approx", ".local"})
      EXPECT_EQ(ptx->find(found), std::string::npos) << found;
    const Result<std::string> code = nvrtc->code(text, sm);
    ASSERT_TRUE(code.ok()) << code.status().what();
    testing::expect_registers_only(*code);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecKernels, ::testing::ValuesIn(specs_with_kernels()),
                         [](const ::testing::TestParamInfo<Spec>& of) {
                           return fmt::format("{}_{}", of.param.codec->name, of.index);
                         });

// A compiler that makes something else of a text.
class BrokenKernels : public testing::GpuTest {};
TEST_F(BrokenKernels, FallBackToTheHost) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "errors cannot be injected into a real compiler";
  const device::Device device = open();
  const Codec& eden = *find_codec("eden");
  ::setenv("FAKE_NVRTC_SPOILS", "sub(s.taken[i], sent)=add(s.taken[i], sent)", 1);
  ::setenv("TITHE_CACHE", "/proc/none", 1);
  const OnDevice got = on_device(device, device::Compiler::load(TITHE_FAKE_NVRTC), eden, defaults(eden));
  ::unsetenv("FAKE_NVRTC_SPOILS");
  ::unsetenv("TITHE_CACHE");
  EXPECT_EQ(got.program, nullptr);
  EXPECT_EQ(got.how, "on the host: the results of a fake GPU differ from the reference's");
}

}  // namespace
}  // namespace tithe::lang
