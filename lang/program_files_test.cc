// SPDX-License-Identifier: Apache-2.0
// Programs of codecs/ that are no codecs of the library, against their formulas written down once more.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/bytes.h"
#include "catalogue/programs.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/prepare.h"
#include "support/scratch.h"

namespace tithe::lang {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

struct Outcome {
  Payload payload;
  Floats left, decoded;
};

const Codec& codec_of(const std::string& program) {
  const Result<const LoadedProgram*> loaded =
      catalogue::load(TITHE_SOURCE_DIR "/codecs/" + program + ".codec");
  EXPECT_TRUE(loaded.ok()) << loaded.status().what();
  return (*loaded)->codec;
}

// The defaults with another value of the first parameter; for a word parameter `first` is the index of the word.
Settings settings_of(const std::string& program, double first) {
  Settings settings = defaults(codec_of(program));
  settings.value[0] = first;
  return settings;
}

// The compiled program, if it can be compiled here, gives the same results.
void expect_same_compiled(const std::string& program, const Call& call, const Floats& grad,
                          const Floats& residual, const Outcome& want) {
  const Codec& codec = codec_of(program);
  const std::string how = how_it_runs(*codec.program, call.settings);
  if (program == "threelc" && find_compiler().ok() && this_machine().simd) {
    EXPECT_EQ(how.find("interpreted"), std::string::npos) << how;
  }
  const std::size_t n = grad.size();
  Payload payload(codec.phases[0].bound(call.settings, n));
  Floats left(n), decoded(n);
  const ScratchForTest scratch(codec, call.settings, n);
  Call with_scratch = call;
  with_scratch.scratch = scratch;
  const Result<Encoded> done =
      codec.impls[0].encode(with_scratch, {grad.data(), residual.data(), left.data(), n}, payload);
  ASSERT_TRUE(done.ok() && done->finite);
  payload.resize(done->bytes);
  ASSERT_EQ(payload, want.payload) << n;
  ASSERT_EQ(left, want.left) << n;
  const std::vector<ByteView> views{ByteView(payload)};
  ASSERT_TRUE(codec.impls[0].decode(call, views, {}, decoded).ok());
  ASSERT_EQ(decoded, want.decoded) << n;
}

// Encodes with feedback, and decodes.
Outcome outcome_of(const std::string& program, const Settings& settings, const Floats& grad,
                   const Floats& residual) {
  const Codec& codec = codec_of(program);
  const std::size_t n = grad.size();
  const ScratchForTest scratch(codec, settings, n);
  const Call call{.settings = settings, .seed = 1, .scratch = scratch};
  Outcome o{.payload = Payload(codec.phases[0].bound(settings, n)), .left = Floats(n), .decoded = Floats(n)};
  const Result<Encoded> done =
      codec.reference().encode(call, {grad.data(), residual.data(), o.left.data(), n}, o.payload);
  EXPECT_TRUE(done.ok() && done->finite);
  o.payload.resize(done->bytes);
  const std::vector<ByteView> views{ByteView(o.payload)};
  EXPECT_TRUE(codec.reference().decode(call, views, {}, o.decoded).ok());
  expect_same_compiled(program, call, grad, residual, o);
  return o;
}

Floats some(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Floats v(n);
  for (float& f : v) {
    const auto draw = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    f = random() % 4 == 0 ? draw * 1e-3F : random() % 3 == 0 ? 0.0F : draw * 1e-6F;
  }
  return v;
}

constexpr std::size_t kCounts[] = {0, 1, 4, 5, 49, 50, 51, 500, 1023, 4096};

TEST(ProgramFiles, ThreeLc) {
  for (const std::size_t n : kCounts)
    for (const float s : {1.0F, 1.75F}) {
      const Floats grad = some(n, 1), residual = some(n, 2);
      const Outcome got = outcome_of("threelc", settings_of("threelc", s), grad, residual);
      float most = 0;
      for (std::size_t i = 0; i < n; ++i) most = std::max(most, std::fabs(grad[i] + residual[i]));
      const float scale = s * most;
      Payload want(4);
      wire::put(want.data(), scale);
      std::vector<unsigned> bytes;
      for (std::size_t i = 0; i < n; ++i) {
        const float x = grad[i] + residual[i];
        const float goes = scale > 0 && std::fabs(x) * 2 >= scale ? std::copysign(scale, x) : 0.0F;
        EXPECT_EQ(got.decoded[i], goes);
        EXPECT_EQ(got.left[i], x - goes);
        if (i % 5 == 0) bytes.push_back(0);
        bytes.back() = 3 * bytes.back() + (goes == 0 ? 1U : goes < 0 ? 0U : 2U);
      }
      for (std::size_t i = n; i % 5 != 0; ++i) bytes.back() = 3 * bytes.back() + 1;
      for (std::size_t k = 0; k < bytes.size();) {
        std::size_t run = 0;
        while (k + run < bytes.size() && bytes[k + run] == 121 && run < 14) ++run;
        want.push_back(static_cast<std::uint8_t>(run >= 2 ? 241 + run : bytes[k]));
        k += run >= 2 ? run : 1;
      }
      EXPECT_EQ(got.payload, want) << n << " " << s;
    }
}

TEST(ProgramFiles, AdaComp) {
  for (const std::size_t n : kCounts)
    for (const std::size_t bin : {500, 50}) {
      const Floats grad = some(n, 3), residual = some(n, 4);
      const Outcome got = outcome_of("adacomp", settings_of("adacomp", bin == 500 ? 0 : 1), grad, residual);
      const auto taken = [&](std::size_t i) { return grad[i] + residual[i]; };
      Floats peaks;
      for (std::size_t first = 0; first < n; first += bin) {
        peaks.push_back(0);
        for (std::size_t i = first; i < std::min<std::size_t>(first + bin, n); ++i)
          peaks.back() = std::max(peaks.back(), std::fabs(taken(i)));
      }
      float lanes[16] = {};
      for (std::size_t b = 0; b < peaks.size(); ++b) lanes[b % 16] += peaks[b];
      for (std::size_t half = 8; half > 0; half /= 2)
        for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
      const float scale = peaks.empty() ? 0.0F : lanes[0] / static_cast<float>(peaks.size());
      ASSERT_GE(got.payload.size(), 4U);
      EXPECT_EQ(wire::get<float>(got.payload.data()), scale) << n;
      std::size_t bytes = 4;
      for (std::size_t first = 0; first < n; first += bin) {
        std::size_t count = 0;
        for (std::size_t i = first; i < std::min<std::size_t>(first + bin, n); ++i) {
          const bool goes = taken(i) != 0 && std::fabs(taken(i) + grad[i]) >= peaks[first / bin];
          const float value = goes ? std::copysign(scale, taken(i)) : 0.0F;
          EXPECT_EQ(got.decoded[i], value) << n << " " << i;
          EXPECT_EQ(got.left[i], taken(i) - value);
          count += goes ? 1 : 0;
        }
        bytes += bin == 500 ? 2 + (9 * count + 7) / 8 : 1 + (6 * count + 7) / 8;
        bytes += (count + 7) / 8;
      }
      EXPECT_EQ(got.payload.size(), bytes) << n;
    }
}

// A block of zeros sends nothing, and a threshold of 0 selects nothing.
TEST(ProgramFiles, AdaCompSendsNoZeros) {
  const Floats zeros(1200, 0.0F);
  EXPECT_EQ(outcome_of("adacomp", settings_of("adacomp", 0), zeros, zeros).payload, Payload(4 + 3 * 2, 0));
}

}  // namespace
}  // namespace tithe::lang
