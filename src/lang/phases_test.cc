// SPDX-License-Identifier: Apache-2.0
// Programs of several phases: what is refused, and what comes out of ranks that agree.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "lang/emit_cuda.h"
#include "lang/loader.h"

namespace tithe::lang {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

std::string problems_of(const std::string& text) {
  const Source source{"my.codec", text};
  Problems problems;
  const bool made = compile(source, problems) != nullptr;
  EXPECT_NE(made, problems.any());
  return problems.text(source);
}

struct Mistake {
  const char* name;
  const char* part;  // of the program below that is replaced
  const char* by;
  const char* said;
};

const std::string kGood =
    "codec my \"a doc\"\n"
    "block 64\n"
    "phase sizes by max\n"
    "send\n"
    "  size: f32 = largest(abs(x)) where not signbit(size)\n"
    "phase levels by sum\n"
    "encode\n"
    "  level = stochastic_level(x, size, 4)\n"
    "send\n"
    "  code: int[] = level\n"
    "decode\n"
    "  f32(code) * (size / 7)\n";

const Mistake kMistakes[] = {
    {"unknown_law", "by max", "by mean", "3:16: payloads do not combine by 'mean'"},
    {"nearly_a_law", "by max", "by mx", "did you mean 'max'?"},
    {"no_law", "by max", "", "a phase says how its payloads combine"},
    {"max_last", "by sum", "by max", "6:17: the last phase does not combine by max"},
    {"decode_first", "by max", "by decode", "3:16: a phase in front of another does not combine by decode"},
    {"floats_summed", "int[] = level", "f32[] = f32(level)", "10:9: sums of floats depend on their order"},
    {"codes_summed", "int[] = level", "u4[] = u32(level + 7)",
     "10:9: in so many bits there is no room for a sum"},
    {"maxima_as_sums", "f32 = largest(abs(x)) where not signbit(size)", "int[] = u32(x > 0)",
     "5:9: 'int[]' is for payloads that are summed"},
    {"sum_of_floats", "int[] = level", "int[] = x * f32(level)",
     "10:3: 'code' is f32, and whole numbers add up"},
    {"sum_of_many", "stochastic_level(x, size, 4)", "i32(clamp(x, -200, 200))",
     "10:3: 'code' can be -200 .. 200, and a sum of 256 ranks has room for 2 to 256 numbers"},
    {"sum_of_nothing", "int[] = level", "int[] = level * 0", "has room for 2 to 256 numbers"},
    {"never_sent", "(size / 7)", "(peak / 7)", "12:16: there is no 'peak' here"},
    {"sent_later", "largest(abs(x))", "largest(abs(x) * f32(code))",
     "'code' is sent later, in the phase 'levels'"},
    {"never_read", "phase levels", "  most: f32 = largest(x)\nphase levels",
     "6:3: 'most' is sent, and the phase 'levels' does not use it"},
    {"no_multiple", "f32(code) * (size / 7)", "if code > 0 then size else -size",
     "12:3: this is no multiple of what is summed"},
    {"more_than_a_multiple", "f32(code) *", "size + f32(code) *",
     "12:3: this is no multiple of what is summed"},
    {"square", "f32(code) *", "f32(code * code) *", "12:3: this is no multiple of what is summed"},
    {"where_of_a_sum", "int[] = level", "int[] = level where code > 0", "what is summed has no 'where'"},
    {"where_of_two_maxima", "  size: f32 = largest(abs(x)) where not signbit(size)",
     "  low: f32 = smallest(x)\n  size: f32 = largest(x) where low <= size",
     "6:32: of two maxima this need not hold"},
    {"maxima_of_places", "f32 = largest(abs(x)) where not signbit(size)", "places[] = x > 0",
     "5:9: maxima are taken of numbers that all ranks send in the same place"},
    {"decode_in_front", "phase levels", "decode\n  size\nphase levels", "7:3: only the last phase decodes"},
    {"nothing_decoded", "decode\n  f32(code) * (size / 7)\n", "", "6:7: the last phase decodes nothing"},
    {"same_phase_twice", "phase levels", "phase sizes", "6:7: there is a phase 'sizes' already"},
    {"outside_of_phases", "block 64\n", "block 64\nencode\n  a = x\n",
     "5:1: what stands above is of no phase"},
    {"name_of_the_other_phase", "  level = stoch", "  size  = stoch",
     "8:3: 'size' is what the phase in front of this one sent"},
    {"two_sums", "int[] = level\n", "int[] = level\n  more: int[] = level\n",
     "11:9: one array is summed in a phase"},
    {"one_sum", "int[] = level", "int = level", "there is one of it for each value"},
    {"pairs_in_a_phase", "  code: int[] = level\n", "  pairs where x > 0\n", "pairs are sent alone"},
    {"values_of_no_indices",
     "encode\n  level = stochastic_level(x, size, 4)\nsend\n  code: int[] = level\n"
     "decode\n  f32(code) * (size / 7)\n",
     "send\n  values at indices\n", "values at indices are sent alone"},
    {"two_sends", "encode\n", "send\n  a: int[] = u32(x > 0)\nencode\n", "a phase has one 'send'"},
};

class PhaseMessages : public testing::TestWithParam<Mistake> {};

TEST_P(PhaseMessages, SayWhatIsWrongAndWhere) {
  const Mistake& m = GetParam();
  std::string text = kGood;
  const std::size_t at = text.find(m.part);
  ASSERT_NE(at, std::string::npos);
  const std::string got = problems_of(text.replace(at, std::string(m.part).size(), m.by));
  EXPECT_NE(got.find(m.said), std::string::npos) << got;
}

const auto kName = [](const auto& of) { return std::string(of.param.name); };
INSTANTIATE_TEST_SUITE_P(All, PhaseMessages, testing::ValuesIn(kMistakes), kName);

TEST(LangPhases, AGoodProgramHasNoProblems) { EXPECT_EQ(problems_of(kGood), ""); }

const std::string kHead = "codec my \"a doc\"\n";

TEST(LangPhases, MessagesOfLists) {
  EXPECT_NE(problems_of(kHead + "phase a by max\nsend\n  values at indices\n")
                .find("the last phase does not combine"),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by sum\nsend\n  values at indices\n")
                .find("4:3: values are summed at indices that the phase in front of it sent"),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by max\nsend\n  indices where x > 0\nphase b by sum\nsend\n"
                                "  values at indices\n")
                .find("4:3: indices without values are one rank's"),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by leader\nsend\n  pairs where x > 0\nphase b by sum\nsend\n"
                                "  values at indices\n")
                .find("4:3: pairs are a codec of one phase"),
            std::string::npos);
}

// A payload is checked by itself.
TEST(LangPhases, MessagesOfWhatAPayloadAloneDoesNotSay) {
  const std::string text =
      kHead +
      "block 64\nphase a by leader\nsend\n  wide: u4 = u32(clamp(largest(abs(x)), 0, 15))\n"
      "phase b by decode\nsend\n  half: u<WIDTH>[] = u32(clamp(x, 0, f32(wide))) WHERE\n"
      "decode\n  f32(half)\n";
  const auto with = [&](const char* width, const char* where) {
    std::string made = text;
    made.replace(made.find("WIDTH"), 5, width);
    made.replace(made.find("WHERE"), 5, where);
    return problems_of(made);
  };
  EXPECT_EQ(with("4", ""), "");
  EXPECT_NE(with("wide", "").find("a payload says itself how long it is"), std::string::npos)
      << with("wide", "");
  EXPECT_NE(with("4", "where half <= wide").find("'where' looks at a payload alone"), std::string::npos);
}

TEST(LangPhases, MessagesOfManyPhases) {
  std::string text = kHead + "block 64\nphase p0 by max\nsend\n  a0: u8 = min(count(x > 0), 255)\n";
  for (int k = 1; k < 4; ++k)
    text += "phase p" + std::to_string(k) + " by max\nsend\n  a" + std::to_string(k) + ": u8 = a" +
            std::to_string(k - 1) + "\n";
  const std::string last = "phase q by decode\nsend\n  s: u1[] = x > f32(a3)\ndecode\n  f32(u32(s))\n";
  EXPECT_NE(problems_of(text + last).find("a codec has at most 4 phases"), std::string::npos);
  const std::string three = text.substr(0, text.find("phase p2")) +
                            "phase q by decode\nsend\n  s: u1[] = x > f32(a0)\ndecode\n  f32(u32(s))\n";
  EXPECT_NE(problems_of(three).find(
                "'a0' was sent in the phase 'p0', and a phase reads what the one in front of it"),
            std::string::npos)
      << problems_of(three);
}

// ---- At work

std::unique_ptr<LoadedProgram> program_of(const std::string& text) {
  const Source source{"test.codec", text};
  Problems problems;
  auto made = compile(source, problems);
  EXPECT_NE(made, nullptr) << problems.text(source);
  return made;
}

struct Ranks {
  const Codec& codec;
  const Impl& impl;
  Call call = {.settings = defaults(codec), .seed = 3, .round = 5};
  Payload context = {};

  Payload sent(const Floats& grad, float* left = nullptr) {
    Payload payload(codec.phases[call.phase].bound(call.settings, grad.size()));
    call.context = context;
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, left, grad.size()}, payload);
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

// Largest of all ranks, then what they add up to, then each rank's own bits under both.
const std::string kThree =
    kHead +
    "block 10\nphase peaks by max\nsend\n  once code: u16 = 7\n  peak: f32 = largest(abs(x))\n"
    "phase votes by sum\nsend\n"
    "  vote: int[] = if abs(x) < peak / 2 then 0 else if x < 0 then -1 else 1\n"
    "phase bits by decode\nencode\n"
    "  most = min(count(vote != 0), 255)\n  up = vote > 0\nsend\n  most: u8\n  up: u1[]\ndecode\n"
    "  if up then f32(most) else -f32(most)\n";

TEST(LangPhases, ThreePhases) {
  const auto program = program_of(kThree);
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

// Floats below zero and zeros of both signs, tables, arrays of odd widths: in any order of ranks.
TEST(LangPhases, MaximaDoNotDependOnTheOrderOfRanks) {
  const auto program =
      program_of(kHead +
                 "block 20\nphase a by max\nsend\n  once all: f32 = largest_of_blocks(largest(x))\n"
                 "  table low: u8 = min(count(x > 0), 255)\n  end: f32 = smallest(x)\n  each: f32[] = x\n"
                 "  code: u3[] = u32(clamp(abs(x), 0, 7))\n"
                 "phase b by decode\nsend\n  up: u1[] = x > 0\ndecode\n"
                 "  if up then all + f32(low) else end + each + f32(code)\n");
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

// What a leader sends is read as it is, of different lengths as well.
TEST(LangPhases, ALeaderSendsPlaces) {
  const auto program =
      program_of(kHead +
                 "block 50\nphase a by leader\nsend\n  once scale: f32 = mean_of_blocks(largest(abs(x)))\n"
                 "  goes: places[] = abs(x) > 10\n"
                 "phase b by sum\nsend\n  level: int[] = if not goes then 0 else if x < 0 then -1 else 1\n"
                 "decode\n  f32(level) * scale\n");
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

// A sum alone is as wide as the most ranks need, and takes no more of them.
TEST(LangPhases, RanksAreCounted) {
  const auto program = program_of(kHead +
                                  "phase a by sum\nsend\n  level: int[] = if x < 0 then -1 else 1\n"
                                  "decode\n  f32(level)\n");
  ASSERT_EQ(program->codec.params.back().name, "workers");
  Ranks ranks{program->codec, program->codec.reference()};
  ranks.call.settings.value[0] = 3;
  const std::vector<Floats> three(3, some(100, 1));
  EXPECT_EQ(ranks.decoded(ranks.agreed(three), 100)[99], three[0][99] < 0 ? -3.0F : 3.0F);
  Payload acc = ranks.agreed(three);
  const auto more = program->codec.reference().combine(ranks.call, 100, acc, ranks.sent(three[0]), nullptr);
  EXPECT_EQ(more.status().code(), Code::kUnsupported);
}

// Whatever stands in front of the last phase, it is checked before anything is written.
TEST(LangPhases, AContextThatIsNoneIsRefused) {
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
    const auto done = ranks.impl.encode(ranks.call, {all[0].data(), nullptr, nullptr, 100}, out);
    EXPECT_EQ(done.status().code(), Code::kCorrupt) << k;
    EXPECT_EQ(out, Payload(out.size(), 0x5a));
  }
}

TEST(LangPhases, NoKernelsAreMadeAndThatIsSaid) {
  const auto program = program_of(kGood);
  const Settings settings = defaults(program->codec);
  EXPECT_STREQ(no_kernels(program->of(settings), settings),
               "no kernels are made yet of what is agreed on in phases");
}

}  // namespace
}  // namespace tithe::lang
