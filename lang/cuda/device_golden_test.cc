// SPDX-License-Identifier: Apache-2.0
// A GPU writes and reads golden frames (tests/golden/): single-phase codecs that have own kernels or a kernel source.
// TITHE_TEST_GPU=real uses a real GPU.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/bytes.h"
#include "frame/pieces.h"
#include "golden/golden_cases.h"
#include "golden/golden_values.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/kernel_source.h"
#include "support/gpu/gpu_values.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using testing::OnGpu;
using testing::there;

class GoldenFrames : public testing::GpuTest {
 protected:
  // The payload of one part of a case.
  static std::vector<std::uint8_t> encoded(DeviceProgram& program, DeviceLane& lane, const Case& c,
                                           const Call& call, int part) {
    const auto stream = [&](int k) { return golden::stream(static_cast<std::uint32_t>(2 * part + k), c.n); };
    const OnGpu grad(lane, stream(0)), residual(lane, stream(1)), left(lane, c.n);
    const bool feedback = !c.codec->traits.lossless;
    const device::Pinned room =
        there(lane.on().pinned(call.settings.codec->phases[0].bound(call.settings, c.n)));
    const Result<Encoded> done = program.encode(
        lane, c.codec->name, call,
        {grad.memory.at(), feedback ? residual.memory.at() : 0, feedback ? left.memory.at() : 0, c.n},
        {room.data(), room.bytes()});
    EXPECT_TRUE(done.ok()) << c.name << ": " << done.status().what();
    return done.ok() ? std::vector<std::uint8_t>(room.data(), room.data() + done->bytes)
                     : std::vector<std::uint8_t>();
  }
  // The values that parts of one payload each decode to.
  static std::vector<float> decoded(DeviceProgram& program, DeviceLane& lane, const Case& c, const Call& call,
                                    std::span<const ByteView> parts) {
    std::vector<device::Pinned> pinned;
    std::vector<ByteView> views;
    for (const ByteView part : parts) {
      pinned.push_back(there(lane.on().pinned(part.size())));
      std::copy(part.begin(), part.end(), pinned.back().data());
      views.emplace_back(pinned.back().data(), part.size());
    }
    const OnGpu out(lane, c.n);
    const Status status = program.decode(lane, c.codec->name, call, views, {0, 1.0F}, out.memory.at(), c.n);
    EXPECT_TRUE(status.ok()) << c.name << ": " << status.what();
    return out.read();
  }
};

TEST_F(GoldenFrames, AreWrittenAndReadOnTheGpu) {
  const device::Device device = open();
  DeviceLane lane = there(DeviceLane::open(device));
  const auto listed = golden::listed_values();
  std::map<std::string, std::unique_ptr<DeviceProgram>> programs;
  std::set<std::string> codecs;
  for (const Case& c : golden::cases()) {
    if (c.codec->phases.size() > 1) continue;
    Call call = golden::call_of(c, 0);
    std::unique_ptr<DeviceProgram>& program = programs[std::string(c.codec->name) + ':' + c.params];
    if (c.codec->kernels != nullptr) {
      if (program == nullptr)
        program = there(DeviceProgram::make(device, compiler(), *c.codec, call.settings));
    } else {
      const std::optional<KernelSource> source = kernel_source(*c.codec, call.settings);
      if (!source) continue;
      const Combination& of = source->program->of(source->settings);
      if (no_kernels(of, source->settings) != nullptr) continue;
      call.settings = source->settings;
      if (program == nullptr) program = there(DeviceProgram::make(device, compiler(), of, source->settings));
    }
    codecs.insert(std::string(c.codec->name));

    std::ifstream in(golden::folder() / (c.name + ".bin"), std::ios::binary);
    const std::vector<std::uint8_t> want{std::istreambuf_iterator<char>(in), {}};
    FrameHeader header = golden::header_of(c);
    std::vector<std::uint8_t> frame(kFrameHeaderBytes +
                                    (c.parts == 1 ? 0U : 8U * static_cast<unsigned>(c.parts)));
    for (int part = 0; part < c.parts; ++part) {
      Call own = call;
      own.seed = golden::call_of(c, part).seed;
      const std::vector<std::uint8_t> payload = encoded(*program, lane, c, own, part);
      if (c.parts > 1)
        wire::put(&frame[kFrameHeaderBytes + 8 * static_cast<std::size_t>(part)],
                  static_cast<std::uint64_t>(payload.size()));
      frame.insert(frame.end(), payload.begin(), payload.end());
    }
    header.payload_bytes = frame.size() - kFrameHeaderBytes;
    ASSERT_TRUE(seal_frame(header, frame).ok());
    EXPECT_EQ(frame, want) << c.name;

    const auto parsed = parse_frame(want);
    ASSERT_TRUE(parsed.ok()) << c.name << ": " << parsed.status().what();
    std::vector<ByteView> parts(parsed->header.parts);
    ASSERT_TRUE(split_parts(*parsed, parts).ok());
    const std::vector<float> values = decoded(*program, lane, c, call, parts);
    EXPECT_TRUE(golden::listed_as(values) == listed.at(c.name)) << c.name;
  }
  for (const char* one : {"fp8", "onebit", "qsgd", "topk", "dgc", "natural", "bf16", "eden"})
    EXPECT_TRUE(codecs.contains(one)) << one;
}

}  // namespace
}  // namespace tithe::lang
