// SPDX-License-Identifier: Apache-2.0
// Programs of several phases: the results of several ranks, interpreted and compiled.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "lang/cpp/compiled.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/loader.h"
#include "lang/prepare.h"
#include "support/scratch.h"

namespace tithe::lang {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

const std::string kHead = "codec my \"a doc\"\n";

std::unique_ptr<LoadedProgram> program_of(const std::string& text) {
  const Source source{"test.codec", text};
  Problems problems;
  auto made = compile(source, problems);
  EXPECT_NE(made, nullptr) << problems.text(source);
  return made;
}

// A program with compiled phases, except those that are only interpreted; without a compiler all are interpreted.
std::unique_ptr<LoadedProgram> compiled_program_of(const std::string& text) {
  auto program = program_of(text);
  const Settings settings = defaults(program->codec);
  const std::string how = how_it_runs(*program, settings);
  for (std::size_t p = 0; p < program->phases.size() && find_compiler().ok() && this_machine().simd; ++p) {
    const Combination& of = program->of(settings, p);
    EXPECT_EQ(of.running->object.load() == nullptr, only_interpreted(of.program) != nullptr) << how;
  }
  return program;
}

struct Ranks {
  const Codec& codec;
  const Impl& impl;
  Call call = {.settings = defaults(codec), .seed = 3, .round = 5};
  Payload context = {};

  Payload sent(const Floats& grad, float* left = nullptr) {
    Payload payload(codec.phases[call.phase].bound(call.settings, grad.size()));
    call.context = context;
    const ScratchForTest scratch(codec, call.settings, grad.size());
    call.scratch = scratch;
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, left, grad.size()}, payload);
    call.scratch = {};
    EXPECT_TRUE(done.ok() && done->finite) << done.status().what();
    payload.resize(done.ok() ? done->bytes : 0);
    EXPECT_TRUE(impl.check(call, grad.size(), payload).ok());
    return payload;
  }
  // The payloads of all ranks, combined; of phases that do not combine the first one's.
  Payload agreed(const std::vector<Floats>& all) {
    Payload acc = sent(all[0]);
    for (std::size_t k = 1; k < all.size() && codec.phases[call.phase].combines(); ++k) {
      const auto done = impl.combine(call, all[k].size(), acc, sent(all[k]), nullptr);
      EXPECT_TRUE(done.ok() && done->finite) << done.status().what();
    }
    return acc;
  }
  void next(const std::vector<Floats>& all) {
    context = agreed(all);
    call.context = context;
    ++call.phase;
  }
  Floats decoded(const Payload& payload, std::size_t n) {
    Floats out(n);
    const std::vector<ByteView> views{ByteView(payload)};
    call.context = context;
    const Status s = impl.decode(call, views, {}, out);
    EXPECT_TRUE(s.ok()) << s.what();
    return out;
  }
};

Floats some(std::size_t n, unsigned seed) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = static_cast<float>(static_cast<int>((i * 37 + seed * 101) % 201) - 100) * 0.25F;
  return v;
}

// The maximum over ranks, then a sum, then each rank's own bits, which depend on both.
const std::string kThree =
    kHead +
    "block 10\nphase peaks by max\nsend\n  once code: u16 = 7\n  peak: f32 = largest(abs(x))\n"
    "phase votes by sum\nsend\n"
    "  vote: int[] = if abs(x) < peak / 2 then 0 else if x < 0 then -1 else 1\n"
    "phase bits by decode\nencode\n"
    "  most = min(count(vote != 0), 255)\n  up = vote > 0\nsend\n  most: u8\n  up: u1[]\ndecode\n"
    "  if up then f32(most) else -f32(most)\n";

TEST(LangPhases, ThreePhases) {
  const auto program = compiled_program_of(kThree);
  ASSERT_EQ(program->codec.phases.size(), 3U);
  EXPECT_EQ(program->codec.phases[1].name, "votes");
  EXPECT_EQ(program->codec.phases[1].laws[0], Law::kSum);
  for (const Impl& impl : program->codec.impls)
    for (const std::size_t n : {0, 1, 9, 10, 11, 1025, 2048}) {
      Ranks ranks{program->codec, impl};
      const std::vector<Floats> all = {some(n, 1), some(n, 2), some(n, 3)};
      ranks.next(all);
      ranks.next(all);
      const Floats got = ranks.decoded(ranks.sent(all[0]), n);
      for (std::size_t first = 0; first < n; first += 10) {
        const std::size_t end = std::min(first + 10, n);
        float peak = 0;
        for (const Floats& x : all)
          for (std::size_t i = first; i < end; ++i) peak = std::max(peak, std::fabs(x[i]));
        std::vector<int> votes(end - first);
        for (const Floats& x : all)
          for (std::size_t i = first; i < end; ++i)
            votes[i - first] += std::fabs(x[i]) < peak / 2 ? 0 : x[i] < 0 ? -1 : 1;
        float most = 0;
        for (const int v : votes) most += v != 0 ? 1.0F : 0.0F;
        for (std::size_t i = first; i < end; ++i)
          ASSERT_EQ(got[i], votes[i - first] > 0 ? most : -most) << n << " " << i;
      }
    }
}

const std::string kMaxima =
    kHead +
    "block 20\nphase a by max\nsend\n  once all: f32 = largest_of_blocks(largest(x))\n"
    "  table low: u8 = min(count(x > 0), 255)\n  end: f32 = smallest(x)\n  each: f32[] = x\n"
    "  code: u3[] = u32(clamp(abs(x), 0, 7))\n"
    "phase b by decode\nsend\n  up: u1[] = x > 0\ndecode\n"
    "  if up then all + f32(low) else end + each + f32(code)\n";

// Floats below zero and zeros of both signs, tables, arrays of odd widths: in any order of ranks.
TEST(LangPhases, MaximaDoNotDependOnTheOrderOfRanks) {
  const auto program = program_of(kMaxima);
  for (const std::size_t n : {0, 1, 20, 45}) {
    std::vector<Floats> all = {some(n, 1), some(n, 2), some(n, 3)};
    for (std::size_t i = 0; i < n; i += 3) all[0][i] = -0.0F, all[1][i] = 0.0F, all[2][i] = -0.0F;
    Ranks ranks{program->codec, program->codec.reference()};
    const Payload forth = ranks.agreed(all);
    EXPECT_EQ(forth, ranks.agreed({all[2], all[1], all[0]})) << n;
    EXPECT_EQ(forth, ranks.agreed({all[1], all[2], all[0]})) << n;
    ranks.next(all);
    const Floats got = ranks.decoded(ranks.sent(all[1]), n);
    for (std::size_t i = 0; i < n; ++i) {
      float most = all[0][0], end = -INFINITY, positive = 0;
      const std::size_t first = i / 20 * 20, stop = std::min(n, first + 20);
      for (const Floats& x : all) {
        most = std::max(most, *std::max_element(x.begin(), x.end()));
        end = std::max(end, *std::min_element(&x[first], &x[first] + (stop - first)));
        float up = 0;
        for (std::size_t j = first; j < stop; ++j) up += x[j] > 0 ? 1.0F : 0.0F;
        positive = std::max(positive, up);
      }
      const float each = std::max({all[0][i], all[1][i], all[2][i]});
      const float code = std::floor(
          std::min(7.0F, std::max({std::fabs(all[0][i]), std::fabs(all[1][i]), std::fabs(all[2][i])})));
      ASSERT_EQ(got[i], all[1][i] > 0 ? most + positive : end + each + code) << n << " " << i;
    }
  }
}

const std::string kPlaces =
    kHead +
    "block 50\nphase a by leader\nsend\n  once scale: f32 = mean_of_blocks(largest(abs(x)))\n"
    "  goes: places[] = abs(x) > 10\n"
    "phase b by sum\nsend\n  level: int[] = if not goes then 0 else if x < 0 then -1 else 1\n"
    "decode\n  f32(level) * scale\n";

// A leader's payload is read unchanged, also with variable sizes.
TEST(LangPhases, LeaderSendsIndices) {
  const auto program = program_of(kPlaces);
  for (const std::size_t n : {0, 1, 50, 1333}) {
    Ranks ranks{program->codec, program->codec.reference()};
    const std::vector<Floats> all = {some(n, 4), some(n, 5)};
    ranks.next(all);
    const float scale = wire::get<float>(ranks.context.data());
    const Floats got = ranks.decoded(ranks.agreed(all), n);
    for (std::size_t i = 0; i < n; ++i) {
      const float both = (all[0][i] < 0 ? -1.0F : 1.0F) + (all[1][i] < 0 ? -1.0F : 1.0F);
      ASSERT_EQ(got[i], std::fabs(all[0][i]) > 10 ? both * scale : 0.0F) << n << " " << i;
    }
  }
}

const std::string kSumAlone =
    kHead + "phase a by sum\nsend\n  level: int[] = if x < 0 then -1 else 1\ndecode\n  f32(level)\n";

// A sum alone is as wide as the most ranks need, and takes no more of them.
TEST(LangPhases, RanksAreCounted) {
  const auto program = program_of(kSumAlone);
  ASSERT_EQ(program->codec.params.back().name, "workers");
  Ranks ranks{program->codec, program->codec.reference()};
  ranks.call.settings.value[0] = 3;
  const std::vector<Floats> three(3, some(100, 1));
  EXPECT_EQ(ranks.decoded(ranks.agreed(three), 100)[99], three[0][99] < 0 ? -3.0F : 3.0F);
  Payload acc = ranks.agreed(three);
  const auto more = program->codec.reference().combine(ranks.call, 100, acc, ranks.sent(three[0]), nullptr);
  EXPECT_EQ(more.status().code(), Code::kUnsupported);
}

// The earlier phases are checked before anything is written.
TEST(LangPhases, RefusesAnInvalidContext) {
  const auto program = program_of(kThree);
  Ranks ranks{program->codec, program->codec.reference()};
  const std::vector<Floats> all = {some(100, 1), some(100, 2)};
  ranks.next(all);
  const Payload good = ranks.context;
  for (std::size_t k = 0; k <= good.size(); ++k) {
    Payload bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(k));
    if (k == good.size()) bad[3] ^= 1;  // `code`
    ranks.call.context = bad;
    Payload out(ranks.codec.phases[1].bound(ranks.call.settings, 100), 0x5a);
    const ScratchForTest scratch(ranks.codec, ranks.call.settings, 100);
    Call call = ranks.call;
    call.scratch = scratch;
    const auto done = ranks.impl.encode(call, {all[0].data(), nullptr, nullptr, 100}, out);
    EXPECT_EQ(done.status().code(), Code::kCorrupt) << k;
    EXPECT_EQ(out, Payload(out.size(), 0x5a));
  }
}

// ---- Compiled

// An item that is sent once depends on one of the previous phase.
const std::string kOnce =
    kHead +
    "block 48\nphase tops by leader\nsend\n  once top: f32 = largest_of_blocks(largest(abs(x)))\n"
    "phase bits by decode\nsend\n  once half: f32 = top * 0.5 where half >= 1\n  up: u1[] = x > 0\n"
    "decode\n  if up then half else -half\n";

// Bytes, residuals and values of three ranks and more, compiled and interpreted.
void expect_compiled_as_interpreted(const LoadedProgram& program, std::size_t n, std::size_t ranks) {
  SCOPED_TRACE(testing::Message() << program.file.name.text << ": " << n << " values, " << ranks << " ranks");
  std::vector<Floats> x(ranks);
  for (std::size_t k = 0; k < ranks; ++k) x[k] = some(n, static_cast<unsigned>(k));
  Ranks by[] = {{program.codec, program.codec.impls[0]}, {program.codec, program.codec.reference()}};
  for (std::size_t p = 0; p < program.phases.size(); ++p) {
    const bool last = p + 1 == program.phases.size();
    for (const Floats& own : x) {
      Floats left[2] = {Floats(n, 99.0F), Floats(n, 99.0F)};
      ASSERT_EQ(by[0].sent(own, left[0].data()), by[1].sent(own, left[1].data())) << p;
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(left[0][i]), std::bit_cast<std::uint32_t>(left[1][i])) << i;
    }
    if (!last) {
      for (Ranks& who : by) who.next(x);
      ASSERT_EQ(by[0].context, by[1].context);
      continue;
    }
    const Payload all = by[1].agreed(x), one = by[1].sent(x[0]);
    const std::vector<ByteView> views{all, one, all, one, one, all};
    for (const bool onto : {false, true}) {
      Floats out[2] = {some(n, 9), some(n, 9)};
      for (int k : {0, 1}) {
        by[k].call.context = by[k].context;
        const Merge merge{onto ? out[k].data() : nullptr, 3};
        ASSERT_TRUE(by[k].impl.decode(by[k].call, views, merge, out[k]).ok());
      }
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(out[0][i]), std::bit_cast<std::uint32_t>(out[1][i])) << i;
    }
  }
}

// Int fields are read and written in place where blocks are whole rows of them, by way of an array in kThree.
const std::string kRows =
    kHead +
    "block 48\nphase a by sum\nsend\n  level: int[] = i32(clamp(x * 5, -120, 120))\ndecode\n  f32(level)\n";

TEST(LangPhases, CompiledEqualsInterpreted) {
  for (const std::string* text : {&kThree, &kMaxima, &kPlaces, &kSumAlone, &kOnce, &kRows}) {
    const auto program = compiled_program_of(*text);
    for (const std::size_t n : {1, 15, 16, 17, 50, 1023, 1024, 1025, 2049, 5003})
      expect_compiled_as_interpreted(*program, n, 3);
    if (text != &kOnce) expect_compiled_as_interpreted(*program, 0, 3);
    expect_compiled_as_interpreted(*program, 333, 13);
  }
}

// The outcome of encoding values under a context: bytes, or an error.
std::string outcome_of(const Ranks& who, const Floats& x, const Payload& context) {
  Call call = who.call;
  call.context = context;
  Payload out(who.codec.phases[call.phase].bound(call.settings, x.size()), 0x5a);
  const ScratchForTest scratch(who.codec, call.settings, x.size());
  call.scratch = scratch;
  const auto done = who.impl.encode(call, {x.data(), nullptr, nullptr, x.size()}, out);
  const std::string bytes(out.begin(), out.end());
  if (done.ok()) return done->finite ? bytes : "not finite";
  if (done.status().code() == Code::kCorrupt) {
    EXPECT_EQ(bytes, std::string(out.size(), 0x5a));
  }
  return done.status().what();
}

// The Status for damaged payloads and contexts, phase by phase; and for values that violate a `where`.
TEST(LangPhases, CompiledAndInterpreterRefuseTheSameBytes) {
  constexpr std::size_t kN = 70;
  for (const std::string* text : {&kThree, &kMaxima, &kPlaces, &kOnce}) {
    const auto program = compiled_program_of(*text);
    const std::vector<Floats> x = {some(kN, 1), some(kN, 2)};
    Ranks by[] = {{program->codec, program->codec.impls[0]}, {program->codec, program->codec.reference()}};
    std::size_t refused = 0;
    for (std::size_t p = 0; p < program->phases.size(); ++p) {
      const Payload good = by[1].sent(x[0]);
      for (std::size_t k = 0; k < 8 * good.size(); ++k) {
        Payload bad = good;
        bad[k / 8] ^= static_cast<std::uint8_t>(1U << k % 8);
        const Status want = by[1].impl.check(by[1].call, kN, bad);
        const Status got = by[0].impl.check(by[0].call, kN, bad);
        ASSERT_EQ(got.code(), want.code()) << p << " " << k << ": " << got.what() << " / " << want.what();
        ASSERT_EQ(got.what(), want.what());
        refused += want.ok() ? 0 : 1;
      }
      if (p + 1 == program->phases.size()) break;
      for (Ranks& who : by) who.next(x);
      const Payload agreed = by[0].context;
      for (std::size_t k = 0; k < agreed.size(); ++k) {
        Payload bad = agreed;
        bad[k] ^= 0x81;
        ASSERT_EQ(outcome_of(by[0], x[0], bad), outcome_of(by[1], x[0], bad)) << p << " " << k;
      }
    }
    EXPECT_GT(refused, 0U);
  }
}

TEST(LangPhases, CompiledReportsUnsupportedSinglePhaseClaims) {
  const auto program = compiled_program_of(kOnce);
  for (const Impl& impl : program->codec.impls) {
    Ranks ranks{program->codec, impl};
    const std::vector<Floats> zeros(2, Floats(100));
    ranks.next(zeros);
    EXPECT_EQ(outcome_of(ranks, zeros[0], ranks.context), "my: 'half' violates its 'where' condition")
        << impl.name;
  }
}

// An object that ignores the previous phase's items, or the number of ranks in a sum, fails verification.
TEST(LangPhases, TheSelfCheckCoversContextsAndSums) {
  static const Object* right = nullptr;
  const auto program = compiled_program_of(kPlaces);
  const Settings settings = defaults(program->codec);
  const Combination& of = program->of(settings);
  right = of.running->object.load();
  if (right == nullptr) GTEST_SKIP() << how_it_runs(*program, settings);
  EXPECT_TRUE(matches_interpreter(*right, of, settings, kAllKinds));
  Object wrong = *right;
  wrong.encode = [](const ObjectCall* call, const float* g, const float* r, float* left, std::uint8_t* out,
                    ObjectAnswer* answer) {
    const std::vector<std::uint32_t> zeros(call->n + 1);
    const std::uint32_t* const agreed[] = {zeros.data(), zeros.data()};
    ObjectCall other = *call;
    other.agreed = agreed;
    right->encode(&other, g, r, left, out, answer);
  };
  EXPECT_FALSE(matches_interpreter(wrong, of, settings, kAllKinds));
  wrong = *right;
  wrong.decode = [](const ObjectCall* call, const std::uint8_t* const* payloads, std::size_t count,
                    const float* base, float divide, float* out) {
    std::vector<Payload> of_one;
    std::vector<const std::uint8_t*> views;
    for (std::size_t p = 0; p < count; ++p) {
      const std::size_t bytes = int_fields::bytes(call->n, call->field_bits);
      of_one.emplace_back(payloads[p], payloads[p] + bytes)[0] = 1;
    }
    for (const Payload& p : of_one) views.push_back(p.data());
    right->decode(call, views.data(), count, base, divide, out);
  };
  EXPECT_FALSE(matches_interpreter(wrong, of, settings, kAllKinds));
}

// An object for each phase that can be compiled; how_it_runs() lists the phases if they run differently.
TEST(LangPhases, EachPhaseNamesItsImplementation) {
  if (!find_compiler().ok() || !this_machine().simd) GTEST_SKIP() << "no C++ compiler found";
  const auto program = compiled_program_of(kPlaces);
  const std::string how = how_it_runs(*program, defaults(program->codec));
  EXPECT_EQ(how.find("a: interpreted: tithe generates C++ for payloads of different lengths only with trits; "
                     "b: compiled for "),
            0U)
      << how;
}

}  // namespace
}  // namespace tithe::lang
