// SPDX-License-Identifier: Apache-2.0
// Programs for which generated C++ computes in another way than the interpreter: quotients, tables of few codes,
// largest and smallest values, clamps with unordered bounds, conditions on bits, and the sums of several payloads.
#include "lang/cpp/emit_cpp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/loader.h"
#include "lang/prepare.h"
#include "support/codec_run.h"

namespace tithe::lang {
namespace {

using harness::first_difference;
using harness::Floats;
using harness::Payload;

// Quotients to their last bits, sent as three floats each; a zero divisor; signs of zeros; a divisor so large that
// the quotients are computed by division instruction.
constexpr const char* kQuotients =
    "codec quotients \"for a test\"\n"
    "block 64\n"
    "encode\n"
    "  gap  = (f64(largest(x)) - f64(smallest(x))) * 0.37\n"
    "  q    = divide(f64(x) * 1.7, gap, 7)\n"
    "  one  = f32(q)\n"
    "  two  = f32(q - f64(one))\n"
    "  size = max(f64(largest(abs(x))), 0x1p-120)\n"
    "  z    = f32(f64(x) / size)\n"
    "send\n"
    "  one: f32[]\n"
    "  two: f32[]\n"
    "  three: f32[] = f32(q - f64(one) - f64(two))\n"
    "  zero: u1[] = signbit(z)\n"
    "  far: f32[] = f32(f64(x) / (size * 0x1p600) * 0x1p600)\n"
    "decode\n"
    "  one + two + three + (if zero then far else far * 0.5)\n";

constexpr const char* kTables =
    "codec tables \"for a test\"\n"
    "param bits: one of 1, 2, 3, 4, 5 \"of a code\"\n"
    "block 96\n"
    "encode\n"
    "  top = largest(abs(x))\n"
    "send\n"
    "  top: f32\n"
    "  code: u<bits>[] = bits(x) >> 7 & u32((1 << bits) - 1) where code <= 31\n"
    "decode\n"
    "  f32(f64(top) * (f64(code) - 1.5) / f64(len + 3))\n";

constexpr const char* kEnds =
    "codec ends \"for a test\"\n"
    "block 48\n"
    "encode\n"
    "  low  = smallest(x)\n"
    "  high = largest(x)\n"
    "  held = clamp(x, high * 0.5, low * 0.5)\n"
    "  up   = held >= 0.001\n"
    "  down = up and signbit(x)\n"
    "send\n"
    "  low: f32\n"
    "  high: f32\n"
    "  up: u1[]\n"
    "  down: u1[] where up or not down\n"
    "decode\n"
    "  if down then low else if up then high else high * 0.25\n";

// Floors of doubles that are evaluated in floats first: quotients of integers, whose floats are close to integers,
// with and without draws; a zero divisor; unordered bounds.
constexpr const char* kFloors =
    "codec floors \"for a test\"\n"
    "block 64\n"
    "encode\n"
    "  low  = smallest(x)\n"
    "  high = largest(x)\n"
    "  gap  = (f64(high) - f64(low)) * 0.125\n"
    "  size = max(f64(largest(abs(x))), 0x1p-120) / 16\n"
    "  kept = f64(clamp(x, low * 0.5, high * 0.5)) - f64(low)\n"
    "  turn = f64(clamp(x, high, low))\n"
    "  share = f64(draw(24)) * 0x1p-24\n"
    "send\n"
    "  even: u3[] = u32(clamp(floor(divide(f64(x) - f64(low), gap, 0)), 0, 7))\n"
    "  some: u4[] = u32(clamp(min(floor(divide(kept, gap, 0) + share), 9), 0, 12))\n"
    "  sign: u6[] = u32(i32(max(min(floor(f64(x) / size + 0.5), 16), -16)) + 16)\n"
    "  turn: u2[] = u32(clamp(floor(turn / size), 0, 3))\n"
    "decode\n"
    "  f32(even) + f32(some) * 16 + f32(sign) * 256 + f32(turn) * 16384\n";

// Trits of all values, as in 3LC; their runs of ones start and end at any position.
constexpr const char* kTrits =
    "codec trits \"for a test\"\n"
    "encode\n"
    "  size = largest(abs(x))\n"
    "  far  = abs(x) + abs(x) >= size and size > 0\n"
    "send\n"
    "  size: f32 where not signbit(size)\n"
    "  sign: trits[] = if not far then 1 else if x < 0 then 0 else 2 where size > 0 or sign == 1\n"
    "decode\n"
    "  (f32(sign) - 1) * size\n";

// Trits in short blocks, between other codes and twice, so that later offsets depend on them. For the third array the
// decoded value comes from a table, and a fourth code would divide by zero.
constexpr const char* kTritsOfBlocks =
    "codec trits_of_blocks \"for a test\"\n"
    "param block_of: one of 7, 64, 200 \"values of a block\"\n"
    "block block_of\n"
    "encode\n"
    "  size = mean(abs(x))\n"
    "send\n"
    "  once width: u8 = 3\n"
    "  table peak: f32 = largest(abs(x))\n"
    "  sign: trits[] = if abs(x) < size * 0.5 then 1 else if x < 0 then 0 else 2\n"
    "  size: f32\n"
    "  low: u3[] = bits(x) >> 7 & 7\n"
    "  again: trits[] = if abs(x) < size * 2 then 1 else if x < 0 then 0 else 2\n"
    "decode\n"
    "  f32(i32(sign) - 1) * size + f32(6 / (3 - i32(again))) * peak + f32(low)\n";
constexpr const char* kTritsLookedUp =
    "codec trits_looked_up \"for a test\"\n"
    "block 64\n"
    "encode\n"
    "  size = mean(abs(x))\n"
    "send\n"
    "  size: f32\n"
    "  sign: trits[] = if abs(x) < size then 1 else if x < 0 then 0 else 2\n"
    "decode\n"
    "  part = f32(6 / (3 - i32(sign)))\n"
    "  part * part * size - part\n";

// The decoded value of two flags comes from a table. Conditions on codes of 2 and 4 bits that depend on a number of
// the block are checked by halves of bytes.
constexpr const char* kFlags =
    "codec flags \"for a test\"\n"
    "block 200\n"
    "encode\n"
    "  size = mean(abs(x))\n"
    "send\n"
    "  size: f32\n"
    "  up: u1[] = x >= 0\n"
    "  far: u1[] = abs(x) > size where up or not far or size >= 0\n"
    "decode\n"
    "  (if up then size else -size) * (if far then 2 else 0.5)\n";
constexpr const char* kCodesInHalves =
    "codec codes_in_halves \"for a test\"\n"
    "param bits: one of 2, 4 \"of a code\"\n"
    "block 200\n"
    "encode\n"
    "  size = largest(abs(x))\n"
    "  most = u32(size > 0.5) + 1\n"
    "send\n"
    "  size: f32\n"
    "  most: u8 = most where most <= 2\n"
    "  code: u<bits>[] = u32(x >= 0) + u32(x >= size * 0.5 and most > 1) where code <= most\n"
    "decode\n"
    "  f32(code) * size * f32(most)\n";

enum class Values { kEven, kFar, kZeros, kTiny };

Floats values_of(Values kind, std::size_t n, std::uint64_t seed) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t draw = draw32(seed, static_cast<std::uint32_t>(i));
    const float even = static_cast<float>(draw >> 8) * 0x1p-23F - 1;
    v[i] = kind == Values::kEven    ? even
           : kind == Values::kFar   ? std::ldexp(even, static_cast<int>(draw % 160) - 80)
           : kind == Values::kZeros ? (draw % 2 == 0 ? 0.0F : -0.0F)
                                    : even * 0x1p-130F;
  }
  return v;
}

// Payloads with one bit changed, cut, or with an additional byte: both implementations reject the same ones.
void expect_same_verdicts(const Codec& codec, const Call& call, std::size_t n, const Payload& good,
                          std::uint64_t seed) {
  for (std::uint32_t turn = 0; turn < 24; ++turn) {
    const auto draw = [&](std::uint32_t k) { return draw32(seed * 24 + turn, k); };
    Payload bad = good;
    if (turn % 3 == 0) bad.resize(draw(0) % (good.size() + 2));
    if (!bad.empty()) bad[draw(1) % bad.size()] ^= static_cast<std::uint8_t>(1U << draw(2) % 8);
    const bool fast = codec.impls[0].check(call, n, bad).ok(),
               slow = codec.reference().check(call, n, bad).ok();
    ASSERT_EQ(fast, slow) << n << " turn " << turn;
    Floats out[2] = {Floats(n), Floats(n)};
    const std::vector<ByteView> views{bad};
    ASSERT_EQ(codec.impls[0].decode(call, views, {}, out[0]).ok(), slow);
    if (!slow) continue;
    ASSERT_TRUE(codec.reference().decode(call, views, {}, out[1]).ok());
    ASSERT_EQ(first_difference(out[0], out[1]), "") << n << " turn " << turn;
  }
}

void expect_same(const LoadedProgram& program, const Settings& settings) {
  const std::string how = how_it_runs(program, settings);
  if (find_compiler().ok() && this_machine().simd) {
    ASSERT_EQ(how.find("interpreted"), std::string::npos) << how;
  }
  const Codec& codec = program.codec;
  for (const Values kind : {Values::kEven, Values::kFar, Values::kZeros, Values::kTiny})
    for (const std::size_t n : {1, 16, 47, 64, 97, 1000, 4096}) {
      const ScratchForTest scratch(codec, settings, n);
      Call call{.settings = settings, .seed = 3, .scratch = scratch};
      std::vector<Payload> payloads;
      for (std::uint64_t peer = 0; peer < 9; ++peer) {
        const Floats grad = values_of(kind, n, peer);
        Payload sent[2];
        Floats left[2] = {Floats(n), Floats(n)};
        for (const int k : {0, 1}) {
          const Impl& impl = k == 0 ? codec.impls[0] : codec.reference();
          sent[k].resize(codec.phases[0].bound(settings, n));
          const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, left[k].data(), n}, sent[k]);
          ASSERT_TRUE(done.ok() && done->finite) << n;
          sent[k].resize(done->bytes);
        }
        ASSERT_EQ(first_difference(sent[0], sent[1]), "") << n;
        ASSERT_EQ(first_difference(left[0], left[1]), "") << n;
        expect_same_verdicts(codec, call, n, sent[0], peer);
        payloads.push_back(sent[0]);
        const Floats base = values_of(Values::kEven, n, 99);
        for (const bool onto : {false, true})
          for (const float divide : {1.0F, 3.0F}) {
            Floats out[2] = {Floats(n), Floats(n)};
            const std::vector<ByteView> views(payloads.begin(), payloads.end());
            const Merge merge{onto ? base.data() : nullptr, divide};
            ASSERT_TRUE(codec.impls[0].decode(call, views, merge, out[0]).ok());
            ASSERT_TRUE(codec.reference().decode(call, views, merge, out[1]).ok());
            ASSERT_EQ(first_difference(out[0], out[1]), "") << n << " of " << payloads.size();
          }
      }
    }
}

void expect_same(const char* text, const std::vector<double>& first) {
  const Source source{"test.codec", text};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr) << problems.text(source);
  Settings settings = defaults(program->codec);
  for (const double value : first) {
    if (!program->params.empty()) settings.value[0] = value;
    expect_same(*program, settings);
  }
}

TEST(CompiledPrograms, QuotientsAreExact) { expect_same(kQuotients, {0}); }
TEST(CompiledPrograms, TablesOfFewCodes) {
  expect_same(kTables, {0, 1, 2, 3, 4});
  expect_same(kFlags, {0});
  expect_same(kCodesInHalves, {0, 1});
}
TEST(CompiledPrograms, Trits) {
  expect_same(kTrits, {0});
  expect_same(kTritsOfBlocks, {0, 1, 2});
  expect_same(kTritsLookedUp, {0});
}
TEST(CompiledPrograms, IntegersThroughFloats) {
  expect_same(kFloors, {0});
  const Source source{"test.codec", kFloors};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr);
  const Combination& of = program->of(defaults(program->codec));
  const std::string text = emit_cpp(of.program, of.schedule).text;
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find("clear(", at)) != std::string::npos; ++at) ++found;
  EXPECT_EQ(found, 4U) << text;
}
// Equal expressions become one node; zeros of different signs and sent items are not merged.
TEST(CompiledPrograms, CommonSubexpressionsAreComputedOnce) {
  constexpr const char* kTwice =
      "codec twice \"for a test\"\n"
      "block 64\n"
      "encode\n"
      "  size = largest(abs(x))\n"
      "  a    = if x < size * 0.5 then size else 0.0\n"
      "  b    = if x < size * 0.5 then size else -0.0\n"
      "send\n"
      "  a: f32[] = a + size\n"
      "  b: f32[] = b\n"
      "  c: f32[] = f32(draw(8)) * largest(abs(x))\n"
      "decode\n"
      "  a + b + c\n";
  expect_same(kTwice, {0});
  const Source source{"test.codec", kTwice};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr);
  const Checked& checked = program->of(defaults(program->codec)).program;
  const auto count = [&](Op op) {
    return std::count_if(checked.nodes.begin(), checked.nodes.end(),
                         [&](const Node& n) { return n.op == op; });
  };
  EXPECT_EQ(count(Op::kLargest), 1);
  EXPECT_EQ(count(Op::kTaken), 1);
  EXPECT_EQ(count(Op::kDraw), 1);
  EXPECT_EQ(count(Op::kLess), 1);
  EXPECT_EQ(count(Op::kSelect), 2);
  EXPECT_EQ(count(Op::kItem), 3);
}
// Halves, their infinities and NaN among them, of numbers of the block and of each value.
TEST(CompiledPrograms, Halves) {
  constexpr const char* kHalves =
      "codec halves \"for a test\"\n"
      "block 64\n"
      "encode\n"
      "  top = half_bits(largest(x))\n"
      "send\n"
      "  top: u16\n"
      "  near: u16[] = half_bits(x)\n"
      "  some: u16[] = bits(x) & 0xffff\n"
      "decode\n"
      "  all = bits(from_half_bits(near)) ^ bits(from_half_bits(top)) ^ bits(from_half_bits(some)) << 1\n"
      "  from_bits(all & 0x3fffffff)\n";
  expect_same(kHalves, {0});
}
// An integer of the plan with one possible value is a constant, so shifts use immediates; a branch that is never
// taken is left out. Integers below 2^31 are compared as signed ones, others are not.
TEST(CompiledPrograms, ConstantsOfThePlan) {
  constexpr const char* kKnown =
      "codec known \"for a test\"\n"
      "param wide: one of no, yes \"for a test\"\n"
      "plan far   = wide is yes\n"
      "plan shift = if far then 21 else 20\n"
      "block 64\n"
      "encode\n"
      "  all  = bits(x)\n"
      "  size = all & 0x7fffffff\n"
      "  near = if far and size == 0x100000 then 1 else 2\n"
      "  low  = u32(size < 0x3f000000) + u32(size <= 0x3e800000) * 2\n"
      "  high = u32(all < 0xbf000000) + u32(all <= 0x80000000) * 2\n"
      "send\n"
      "  a: u12[] = all >> shift\n"
      "  b: u6[] = u32(near) + low * 4 + high * 16\n"
      "decode\n"
      "  from_bits(a << shift) + f32(b)\n";
  expect_same(kKnown, {0, 1});
  const Source source{"test.codec", kKnown};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr);
  const Combination& of = program->of(defaults(program->codec));
  const std::string whole = emit_cpp(of.program, of.schedule).text;
  const std::string text = whole.substr(whole.find("encode_as("));  // after the common part
  for (const char* part : {"shr_by<20>(", "shl_by<20>(", "(as_i("})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_EQ(text.find("= select("), std::string::npos);
}
// Items that are not sent in some settings are not computed there either.
TEST(CompiledPrograms, SettingsRemoveDeadCode) {
  constexpr const char* kSome =
      "codec some \"for a test\"\n"
      "param mode: one of scaled, bare \"for a test\"\n"
      "block 64\n"
      "encode\n"
      "  size = mean(abs(x))\n"
      "  up   = x >= 0\n"
      "send\n"
      "  size: f32 when mode is scaled where not signbit(size)\n"
      "  up: u1[]\n"
      "decode\n"
      "  unit = if mode is scaled then size else 1\n"
      "  if up then unit else -unit\n";
  expect_same(kSome, {0, 1});
  const Source source{"test.codec", kSome};
  Problems problems;
  const auto program = compile(source, problems);
  ASSERT_NE(program, nullptr);
  ASSERT_EQ(program->combinations.size(), 2U);
  for (const std::size_t scaled : {1U, 0U}) {
    const Combination& of = program->combinations[1 - scaled];
    EXPECT_EQ(of.program.items.size(), 1 + scaled);
    EXPECT_EQ(of.schedule.passes.size(), scaled);
    EXPECT_EQ(payload_bytes(of.program, 100), 13 + 8 * scaled);
  }
}
TEST(CompiledPrograms, EndsOfTheValuesAndConditionsOnBits) { expect_same(kEnds, {0}); }

}  // namespace
}  // namespace tithe::lang
