// SPDX-License-Identifier: Apache-2.0
// scan, sort, rank, histogram and reductions by a function: the programs of codecs/examples against their formulas
// written down once more, and compiled programs against the interpreter.
#include "lang/run/tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "catalogue/programs.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/prepare.h"
#include "support/codec_run.h"

namespace tithe::lang {
namespace {

using harness::Data;
using harness::first_difference;
using harness::Floats;
using harness::Payload;

constexpr std::size_t kCounts[] = {0, 1, 2, 31, 32, 33, 255, 256, 257, 1000, 1024, 2500, 20'000};

struct Outcome {
  Payload payload;
  Floats left, decoded;
  bool finite = false;
};

Outcome outcome_of(const Codec& codec, const Impl& impl, const Floats& grad, const Floats& residual) {
  const std::size_t n = grad.size();
  const ScratchForTest scratch(codec, defaults(codec), n);
  const Call call{.settings = defaults(codec), .seed = 1, .scratch = scratch};
  Outcome o{
      .payload = Payload(codec.phases[0].bound(call.settings, n)), .left = Floats(n), .decoded = Floats(n)};
  const Result<Encoded> done = impl.encode(call, {grad.data(), residual.data(), o.left.data(), n}, o.payload);
  EXPECT_TRUE(done.ok()) << done.status().what();
  o.finite = done.ok() && done->finite;
  if (!o.finite) return o;
  o.payload.resize(done->bytes);
  const std::vector<ByteView> views{ByteView(o.payload)};
  EXPECT_TRUE(impl.decode(call, views, {}, o.decoded).ok());
  return o;
}

// A program's impls agree, and its decoded values equal `of` applied to each block of taken values.
using OfBlock = Floats (*)(const Floats& x);
void expect(const Codec& codec, std::size_t block, OfBlock of) {
  for (const std::size_t n : kCounts)
    for (const Data data : {Data::kGaussian, Data::kHeavy, Data::kSparse}) {
      const Floats grad = harness::values(data, n, 1), residual = harness::values(data, n, 2);
      Floats want;
      for (std::size_t first = 0; first < n && of != nullptr; first += block) {
        Floats x;
        for (std::size_t i = first; i < std::min(n, first + block); ++i) x.push_back(grad[i] + residual[i]);
        const Floats some = of(x);
        want.insert(want.end(), some.begin(), some.end());
      }
      const Outcome slow = outcome_of(codec, codec.reference(), grad, residual);
      ASSERT_TRUE(slow.finite) << n;
      if (of != nullptr) {
        ASSERT_EQ(first_difference(slow.decoded, want), "") << n << " " << harness::name(data);
      }
      const Outcome fast = outcome_of(codec, codec.impls[0], grad, residual);
      ASSERT_EQ(first_difference(fast.payload, slow.payload), "") << n;
      ASSERT_EQ(first_difference(fast.left, slow.left), "") << n;
      ASSERT_EQ(first_difference(fast.decoded, slow.decoded), "") << n;
    }
}

void expect_compiled(const LoadedProgram& program) {
  const std::string how = how_it_runs(program, defaults(program.codec));
  if (find_compiler().ok() && this_machine().simd) {
    EXPECT_EQ(how.find("interpreted"), std::string::npos) << how;
  }
}

void example(const std::string& name, std::size_t block, OfBlock of) {
  const auto loaded = catalogue::load(TITHE_SOURCE_DIR "/codecs/examples/" + name + ".codec");
  ASSERT_TRUE(loaded.ok()) << loaded.status().what();
  expect_compiled(**loaded);
  expect((*loaded)->codec, block, of);
}

// As docs/reference/language_reference.md defines it: sixteen accumulators.
float mean_of(const Floats& x) {
  float lanes[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return lanes[0];
}
float mean_where(const Floats& x, const std::vector<bool>& which) {
  Floats counted = x;
  float count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    counted[i] = which[i] ? x[i] : 0.0F;
    count += which[i] ? 1.0F : 0.0F;
  }
  return count == 0 ? 0 : mean_of(counted) / count;
}

TEST(LangTables, TopSignsByRank) {
  example("top_signs", 256, [](const Floats& x) {
    std::vector<std::size_t> places(x.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(),
                     [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) < std::fabs(x[b]); });
    std::vector<bool> sent(x.size());
    for (std::size_t k = x.size() < 32 ? 0 : x.size() - 32; k < x.size(); ++k) sent[places[k]] = true;
    Floats sizes(x.size()), out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sizes[i] = std::fabs(x[i]);
    const float size = mean_where(sizes, sent);
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = !sent[i] ? 0.0F : x[i] < 0 ? -size : size;
    return out;
  });
}

TEST(LangTables, MedianBySort) {
  example("median", 512, [](const Floats& x) {
    Floats sorted = x;
    std::sort(sorted.begin(), sorted.end());
    std::vector<bool> up(x.size()), down(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) up[i] = x[i] >= sorted[x.size() / 2];
    for (std::size_t i = 0; i < x.size(); ++i) down[i] = !up[i];
    const float low = mean_where(x, down), high = mean_where(x, up);
    Floats out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = up[i] ? high : low;
    return out;
  });
}

TEST(LangTables, OctavesByHistogram) {
  example("octaves", 1024, [](const Floats& x) {
    const auto octave = [](float v) { return std::bit_cast<std::uint32_t>(v) >> 23 & 0xff; };
    std::uint32_t top = 0;
    const auto below = [&] {
      return static_cast<std::size_t>(
          std::count_if(x.begin(), x.end(), [&](float v) { return octave(v) <= top; }));
    };
    while (below() < x.size() - x.size() / 64) ++top;
    for (const float v : x) top = std::max(top, std::max(octave(v), 3U) - 3);
    const float scale = std::bit_cast<float>(std::clamp(top + 1, 4U, 254U) << 23);
    Floats out;
    for (const float v : x)
      out.push_back((std::clamp(std::nearbyint(v / scale * 7), -7.0F, 7.0F) + 0.0F) * (scale / 7));  // no -0
    return out;
  });
}

TEST(LangTables, PulsesByScan) {
  example("pulses", 256, [](const Floats& x) {
    float size = 0;
    for (const float v : x) size = std::max(size, std::fabs(v));
    std::uint32_t sum = 0;
    Floats out;
    for (const float v : x) {
      const std::uint32_t before = sum;
      sum += size == 0 ? 0 : static_cast<std::uint32_t>(std::fabs(v) / size * 65536);
      out.push_back(sum >> 16 == before >> 16 ? 0.0F : v < 0 ? -size : size);
    }
    return out;
  });
}

TEST(LangTables, FarthestByReduce) {
  example("farthest", 512, [](const Floats& x) {
    float far = 0;
    for (const float v : x)  // two values at the same distance differ only in sign
      if (std::fabs(v) > std::fabs(far)) far = v;
    Floats out;
    for (const float v : x) {
      const float level = far == 0 ? 0 : std::clamp(std::nearbyint(v / far * 10), -5.0F, 10.0F);
      out.push_back((level + 0.0F) * (far / 10));
    }
    return out;
  });
}

// Cases not covered by the examples: blocks of many pieces, every type, conditions, and a function that is neither
// associative nor starts with its neutral element. All implementations use the same order of operations.
TEST(LangTables, CompiledEqualsInterpreted) {
  const char* const kOdd =
      "codec odd \"for a test\"\n"
      "param first: real = 0.75 in 0 .. 1 \"where a reduction begins\"\n"
      "plan more = 3\n"
      "fn mixed(a, b) = a * 31 + (b ^ u32(more))\n"
      "fn last(a, b) = b\n"
      "fn steps(a, b) = f32(more) - a * 0.5 + b\n"
      "fn wide(a, b) = max(a, b) * 0.5\n"
      "fn least(a, b) = if b < a then b else a\n"
      "encode\n"
      "  count = histogram(u32(draw(4)), 16 where x > 0)\n"
      "  hash  = reduce(mixed, 7, bits(x))\n"
      "  far   = reduce(steps, f32(first), x where x > 0)\n"
      "  half  = f32(clamp(reduce(wide, first, f64(x) where x < 0), -1, 1))\n"
      "  low   = reduce(least, 5, i32(clamp(x * 1000, -9, 9)))\n"
      "  end   = reduce(last, 0, x)\n"
      "  ones  = scan(x > 0)\n"
      "send\n"
      "  hash: u32 = hash ^ entry(scan(count), 9) ^ entry(count, 99)\n"
      "  low: u8 = u32(low + 9)\n"
      "  far: f32 = clamp(far, -2, 2)\n"
      "  half: f32\n"
      "  end: f32\n"
      "  ones: u8[] = ones & 0xff\n"
      "decode\n"
      "  f32(ones + low + (hash & 1)) + far + half + end\n";
  const char* const kOrders =
      "codec orders \"for a test\"\n"
      "block 300\n"
      "encode\n"
      "  rise = sort(i32(clamp(x * 100, -1000, 1000)))\n"
      "  of   = sort(bits(x) & 0xff)\n"
      "  rank = rank(i32(clamp(x * 10, -100, 100)))\n"
      "  mine = entry(rise, rank)\n"
      "send\n"
      "  most: u8 = entry(of, max(len, 2) - 2)\n"
      "  rank: u16[]\n"
      "  mine: u16[] = u32(mine + 1000)\n"
      "decode\n"
      "  f32(rank + mine + most)\n";
  for (const char* text : {kOdd, kOrders}) {
    const Source source{"test.codec", text};
    Problems problems;
    const auto program = compile(source, problems);
    ASSERT_NE(program, nullptr) << problems.text(source);
    expect_compiled(*program);
    expect(program->codec, 0, nullptr);
  }
}

// Short blocks are encoded several at a time; an error in one of them is attributed to that block.
TEST(LangTables, ShortBlocksAreReported) {
  const Source source{"test.codec",
                      "codec picky \"for a test\"\nblock 8\nencode\n  peak = largest(abs(x))\n"
                      "send\n  peak: f32 where peak <= 1\n"
                      "  code: u8[] = u32(clamp(round(abs(x) * 100), 0, 255)) where code <= 200\n"
                      "decode\n  f32(code) * peak\n"};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr) << problems.text(source);
  const Codec& codec = program->codec;
  const auto encoded = [&](const Floats& grad) {
    Floats left(grad.size());
    Payload payload(codec.phases[0].bound(defaults(codec), grad.size()));
    const ScratchForTest scratch(codec, defaults(codec), grad.size());
    return codec.reference().encode({.settings = defaults(codec), .scratch = scratch},
                                    {grad.data(), nullptr, left.data(), grad.size()}, payload);
  };
  Floats grad(4001, 0.5F);
  EXPECT_TRUE(encoded(grad).ok() && encoded(grad)->finite);
  grad[8 * 300 + 3] = 2;
  ASSERT_FALSE(encoded(grad).ok());
  EXPECT_EQ(encoded(grad).status().code(), Code::kUnsupported);
  EXPECT_NE(encoded(grad).status().what().find("'peak' of block 300 violates"), std::string::npos)
      << encoded(grad).status().what();
  grad[8 * 300 + 3] = INFINITY;
  EXPECT_TRUE(encoded(grad).ok() && !encoded(grad)->finite);
}

// Keys increase with their values, and convert back to them.
TEST(LangTables, Keys) {
  const float kRising[] = {-INFINITY, -2.5F, -1e-40F, -0.0F, 0.0F, 1e-40F, 1.0F, INFINITY};
  for (std::size_t k = 0; k < std::size(kRising); ++k) {
    const auto bits = std::bit_cast<std::uint32_t>(kRising[k]);
    const std::uint32_t key = key_of(Type::kF32, bits);
    EXPECT_EQ(value_of(Type::kF32, key), bits);
    if (k > 0) {
      EXPECT_LT(key_of(Type::kF32, std::bit_cast<std::uint32_t>(kRising[k - 1])), key);
    }
  }
  EXPECT_EQ(key_of(Type::kF32, 0xffc00000U), ~0U);
  EXPECT_LT(key_of(Type::kI32, 0x80000000U), key_of(Type::kI32, 0xffffffffU));
  EXPECT_LT(key_of(Type::kI32, 0xffffffffU), key_of(Type::kI32, 0));
  EXPECT_EQ(value_of(Type::kI32, key_of(Type::kI32, 77)), 77U);
}

}  // namespace
}  // namespace tithe::lang
