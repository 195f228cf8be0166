// SPDX-License-Identifier: Apache-2.0
// Programs in the codec language and the codecs in C++ that they are twins of (codecs/programs.def): the same bytes,
// the same residuals, the same values, and the same verdict about bytes that may be wrong; interpreted, and as they
// were compiled with tithe, where C++ is made of them.
#include <gtest/gtest.h>

#include <random>

#include "codec_case.h"
#include "lang/compiled.h"
#include "lang/loader.h"
#include "support/codec_run.h"

namespace tithe::conformance {
namespace {

using harness::Base;
using harness::EncodeOutput;
using harness::Keep;

struct Twin {
  const char* program;
  const char* settings;
  const char* spec;
};
constexpr Twin kTwins[] = {
#define TITHE_PROGRAM(file, settings, spec) {#file, settings, spec},
#include "../../codecs/programs.def"
#undef TITHE_PROGRAM
};

Spec program_of(const Twin& twin) {
  std::string text = std::string(TITHE_SOURCE_DIR "/codecs/") + twin.program + ".codec";
  if (*twin.settings != 0) text += std::string(":") + twin.settings;
  return harness::spec_of(text);
}

class TwinSuite : public testing::TestWithParam<Twin> {
 protected:
  const Spec program = program_of(GetParam()), twin = harness::spec_of(GetParam().spec);

  void SetUp() override { ASSERT_TRUE(program.codec != nullptr && twin.codec != nullptr); }

  static Call call_of(const Spec& spec) {
    return {.settings = spec.settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  }
  static EncodeOutput encode(const Spec& spec, const Impl& impl, const Floats& grad, const Floats& residual,
                             Keep keep) {
    return harness::encode(*spec.codec, impl, call_of(spec), grad, residual, keep);
  }
  static EncodeOutput encode(const Spec& spec, const Floats& grad, const Floats& residual, Keep keep) {
    return encode(spec, spec.codec->reference(), grad, residual, keep);
  }
  static Status check(const Spec& spec, const Impl& impl, std::size_t n, const Payload& payload) {
    return impl.check(call_of(spec), n, payload);
  }
  // Whether a payload begins with what these settings write. A codec in C++ reads its settings in the payload, and so
  // takes what others write; a program knows its own.
  bool own_settings(const Payload& payload) const {
    const lang::Checked& of = lang::program_of(*program.codec)->of(program.settings).program;
    const Payload good = encode(program, {}, {}, Keep::kResidualOut).payload;
    const std::size_t head = std::min(lang::once_bytes(of), payload.size());
    const bool known = std::all_of(of.items.begin(), of.items.end(), [](const lang::Item& item) {
      return !item.once || item.input == lang::kNone;
    });
    return !known ||
           std::equal(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(head), good.begin());
  }
  static Floats decode(const Spec& spec, const Impl& impl, std::size_t n,
                       const std::vector<Payload>& payloads, Base base, float divide) {
    Floats out(n, 99.0F);
    const Status s = harness::decode(*spec.codec, impl, call_of(spec), payloads, base,
                                     values(Data::kGaussian, n, 77), divide, out);
    EXPECT_TRUE(s.ok()) << s.what();
    return out;
  }
};

TEST_P(TwinSuite, SameBytesResidualsAndValues) {
  for (const std::size_t n : kSizes) {
    EXPECT_EQ(program.codec->phases[0].bound(program.settings, n),
              twin.codec->phases[0].bound(twin.settings, n))
        << n;
    std::vector<Payload> payloads;
    for (const Data data : data_for(n))
      for (const Keep keep : {Keep::kResidualOut, Keep::kApart, Keep::kInPlace}) {
        SCOPED_TRACE(testing::Message() << n << " " << name(data) << ", " << name(keep));
        const Floats grad = values(data, n, 1), residual = values(data, n, 2);
        const EncodeOutput want = encode(twin, grad, residual, keep);
        for (const Impl& impl : program.codec->impls) {
          SCOPED_TRACE(impl.name);
          const EncodeOutput got = encode(program, impl, grad, residual, keep);
          ASSERT_EQ(got.finite, want.finite);
          ASSERT_EQ(first_difference(got.payload, want.payload), "");
          ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "");
        }
        payloads.push_back(want.payload);
      }
    for (const Base base : {Base::kNull, Base::kOther, Base::kInPlace})
      for (const float divide : {1.0F, 3.0F}) {
        const Floats want = decode(twin, twin.codec->reference(), n, payloads, base, divide);
        for (const Impl& impl : program.codec->impls)
          ASSERT_EQ(first_difference(decode(program, impl, n, payloads, base, divide), want), "")
              << n << " " << impl.name;
      }
  }
}

// At the ends of the floats the two may differ in what they report, not in what they do with what neither reports.
TEST_P(TwinSuite, SameAtTheEndsOfTheFloats) {
  for (const std::size_t n : {1, 33, 2049})
    for (const Extreme kind : kExtremes) {
      SCOPED_TRACE(testing::Message() << n << " " << harness::name(kind));
      const Floats grad = extremes(kind, n, 1), before = extremes(Extreme::kBottom, n, 2);
      const EncodeOutput want = encode(twin, grad, before, Keep::kApart),
                         got = encode(program, grad, before, Keep::kApart);
      if (kind == Extreme::kBottom) {
        ASSERT_TRUE(got.finite);
      }
      if (!got.finite || !want.finite) continue;
      ASSERT_EQ(first_difference(got.payload, want.payload), "");
      ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "");
    }
}

TEST_P(TwinSuite, SameVerdictOnBytesThatMayBeWrong) {
  std::mt19937 random(5);
  std::size_t refused = 0;
  for (const std::size_t n : {0, 1, 9, 1025}) {
    const Payload good = encode(twin, values(Data::kHeavy, n, 1), {}, Keep::kResidualOut).payload;
    for (int turn = 0; turn < 400; ++turn) {
      Payload bad = good;
      if (turn % 8 == 0) bad.resize(random() % (good.size() + 3));
      for (int k = 0; k < 1 + turn % 3 && !bad.empty(); ++k)
        bad[turn % 2 == 0 ? random() % bad.size() : random() % std::min<std::size_t>(bad.size(), 16)] ^=
            static_cast<std::uint8_t>(1U << random() % 8);
      const Status theirs = check(twin, twin.codec->reference(), n, bad);
      for (const Impl& impl : program.codec->impls) {
        const Status mine = check(program, impl, n, bad);
        if (!own_settings(bad)) {
          ASSERT_EQ(mine.code(), Code::kCorrupt) << n;
          continue;
        }
        ASSERT_EQ(mine.code(), theirs.code()) << n << ": " << mine.what() << " / " << theirs.what();
      }
      refused += theirs.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 100U);  // bytes of some kinds are all values
}

// What TITHE_TARGET leaves is one of the levels that they are compiled for; or it says why there is no C++ of it.
TEST_P(TwinSuite, CompiledWithTithe) {
  if (!this_machine().simd) GTEST_SKIP() << "TITHE_FORCE_REFERENCE is set";
  const lang::LoadedProgram& of = *lang::program_of(*program.codec);
  const std::string how = lang::how_it_runs(of, program.settings);
  if (program.codec->traits.selects) return;
  if (const char* why = lang::only_interpreted(of.of(program.settings).program)) {
    EXPECT_EQ(how, std::string("interpreted: ") + why);
    return;
  }
  EXPECT_NE(how.find("with tithe itself"), std::string::npos) << how;
}

const auto kName = [](const auto& of) { return std::to_string(of.index) + "_" + of.param.program; };
INSTANTIATE_TEST_SUITE_P(All, TwinSuite, testing::ValuesIn(kTwins), kName);

}  // namespace
}  // namespace tithe::conformance
