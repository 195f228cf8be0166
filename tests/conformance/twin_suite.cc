// SPDX-License-Identifier: Apache-2.0
// Programs in the codec language and the codecs in C++ that they are twins of (codecs/programs.def): the same bytes,
// the same residuals, the same values, and the same verdict about bytes that may be wrong; interpreted, and as they
// were compiled with tithe, where C++ is made of them.
#include <gtest/gtest.h>

#include <random>

#include "codec_case.h"
#include "lang/loader.h"
#include "lang/prepare.h"
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
#include "tithe/seam/catalogue.h"
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

  // The phase that is looked at, and what three ranks agreed on in front of it.
  std::uint8_t phase_ = 0;
  Payload context_;

  template <typename Of>
  void each_phase(std::size_t n, const Of& of) {
    const Codec& codec = *twin.codec;
    ASSERT_EQ(program.codec->phases.size(), codec.phases.size());
    context_.clear();
    for (phase_ = 0; phase_ < codec.phases.size(); ++phase_) {
      if (codec.phases.size() > 1) {
        ASSERT_EQ(program.codec->phases[phase_].laws[0], codec.phases[phase_].laws[0]);
      }
      of();
      if (phase_ + 1U == codec.phases.size()) break;
      Payload agreed;
      for (unsigned rank = 0; rank < 3; ++rank) {
        const Payload own = encode(twin, values(Data::kHeavy, n, 1 + rank), {}, Keep::kNothing).payload;
        if (rank == 0) {
          agreed = own;
        } else if (codec.phases[phase_].combines()) {
          ASSERT_TRUE(codec.reference().combine(call_of(twin), n, agreed, own, nullptr).ok());
        }
      }
      context_ = agreed;
    }
    phase_ = 0;
    context_.clear();
  }
  bool last() const { return phase_ + 1U == twin.codec->phases.size(); }

  Call call_of(const Spec& spec) const {
    return {.settings = spec.settings,
            .seed = 7,
            .shared_seed = 8,
            .round = 3,
            .tensor = 2,
            .chunk = 1,
            .phase = phase_,
            .context = context_};
  }
  EncodeOutput encode(const Spec& spec, const Impl& impl, const Floats& grad, const Floats& residual,
                      Keep keep) const {
    return harness::encode(*spec.codec, impl, call_of(spec), grad, residual, keep);
  }
  EncodeOutput encode(const Spec& spec, const Floats& grad, const Floats& residual, Keep keep) const {
    return encode(spec, spec.codec->reference(), grad, residual, keep);
  }
  Status check(const Spec& spec, const Impl& impl, std::size_t n, const Payload& payload) const {
    return impl.check(call_of(spec), n, payload);
  }
  bool reads_finite(const Spec& spec, std::size_t n, const Payload& payload) const {
    Floats out(n);
    const std::vector<ByteView> views{ByteView(payload)};
    EXPECT_TRUE(spec.codec->reference().decode(call_of(spec), views, {}, out).ok());
    return std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); });
  }
  // True if a payload begins with what these settings write. A codec in C++ reads its settings in the payload, and so
  // takes what others write; a program knows its own.
  bool own_settings(const Payload& payload) const {
    const lang::Checked& of = program.codec->program->of(program.settings, phase_).program;
    if (of.items.empty() || of.counts || of.adds()) return true;  // both know theirs
    const Payload good = encode(program, {}, {}, Keep::kResidualOut).payload;
    const std::size_t head = std::min(lang::once_bytes(of), payload.size());
    const bool known = std::all_of(of.items.begin(), of.items.end(), [](const lang::Item& item) {
      return !item.once || item.input == lang::kNone;
    });
    return !known ||
           std::equal(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(head), good.begin());
  }
  Floats decode(const Spec& spec, const Impl& impl, std::size_t n, const std::vector<Payload>& payloads,
                Base base, float divide) const {
    Floats out(n, 99.0F);
    const Status s = harness::decode(*spec.codec, impl, call_of(spec), payloads, base,
                                     values(Data::kGaussian, n, 77), divide, out);
    EXPECT_TRUE(s.ok()) << s.what();
    return out;
  }
  void same_bytes(std::size_t n) const;
  void same_sums(std::size_t n, const std::vector<Payload>& payloads) const;
  void same_verdict(std::size_t n, std::size_t& refused) const;
};

void TwinSuite::same_bytes(std::size_t n) const {
  EXPECT_EQ(program.codec->phases[phase_].bound(program.settings, n),
            twin.codec->phases[phase_].bound(twin.settings, n))
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
  if (program.codec->phases[phase_].combines()) same_sums(n, payloads);
  if (!last()) return;
  for (const Base base : {Base::kNull, Base::kOther, Base::kInPlace})
    for (const float divide : {1.0F, 3.0F}) {
      const Floats want = decode(twin, twin.codec->reference(), n, payloads, base, divide);
      for (const Impl& impl : program.codec->impls)
        ASSERT_EQ(first_difference(decode(program, impl, n, payloads, base, divide), want), "")
            << n << " " << impl.name;
    }
}

void TwinSuite::same_sums(std::size_t n, const std::vector<Payload>& payloads) const {
  for (std::size_t k = 1; k < payloads.size(); k += 3)
    for (const bool keeps : {false, true}) {
      const Floats left = values(Data::kGaussian, n, 5);
      const harness::Sum want =
          harness::combine(twin.codec->reference(), call_of(twin), payloads[0], payloads[k], left, keeps);
      for (const Impl& impl : program.codec->impls)
        ASSERT_TRUE(harness::combine(impl, call_of(program), payloads[0], payloads[k], left, keeps) == want)
            << n << " " << impl.name;
    }
}

void TwinSuite::same_verdict(std::size_t n, std::size_t& refused) const {
  std::mt19937 random(5);
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
      // A program reads finite values only; a codec of floats in C++ reads codes of infinity, which its encoder never
      // writes.
      const bool reads = theirs.ok() && (mine.ok() || reads_finite(twin, n, bad));
      ASSERT_EQ(mine.code(), reads ? Code::kOk : Code::kCorrupt)
          << n << ": " << mine.what() << " / " << theirs.what();
    }
    refused += theirs.ok() ? 0 : 1;
  }
}

TEST_P(TwinSuite, SameBytesResidualsAndValues) {
  for (const std::size_t n : kSizes) each_phase(n, [&] { same_bytes(n); });
}

// At the ends of the floats the two may differ in what they report, not in what they do with what neither reports.
TEST_P(TwinSuite, SameAtTheEndsOfTheFloats) {
  for (const std::size_t n : {1, 33, 2049})
    each_phase(n, [&] {
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
    });
}

TEST_P(TwinSuite, SameVerdictOnBytesThatMayBeWrong) {
  std::size_t refused = 0;
  for (const std::size_t n : {0, 1, 9, 1025}) each_phase(n, [&] { same_verdict(n, refused); });
  EXPECT_GT(refused, 100U);  // bytes of some kinds are all values
}

// Three ranks through all phases, of codecs that have several.
class TwinRounds : public TwinSuite {};

TEST_P(TwinRounds, SameRounds) {
  const std::string spec =
      std::string(program.codec->name) + (*GetParam().settings == 0 ? "" : ":") + GetParam().settings;
  for (const std::size_t n : {1, 33, 1025, 4097}) {
    const std::vector<Floats> x = {values(Data::kGaussian, n, 1), values(Data::kHeavy, n, 2),
                                   values(Data::kGaussian, n, 3)};
    const harness::Round want = harness::round_by(twin.codec->reference(), GetParam().spec, x);
    for (const Impl& impl : program.codec->impls)
      harness::expect_same(harness::round_by(impl, spec, x), want, impl.name);
  }
}

// The target that TITHE_TARGET leaves is one of the levels they are compiled for; or it says why there is no C++ of it.
TEST_P(TwinSuite, CompiledWithTithe) {
  if (!this_machine().simd) GTEST_SKIP() << "TITHE_FORCE_REFERENCE is set";
  const lang::LoadedProgram& of = *program.codec->program;
  const std::string how = lang::how_it_runs(of, program.settings);
  if (of.of(program.settings, 0).program.sends_pairs) {
    EXPECT_EQ(how.find("by the library's kernels") == std::string::npos,
              GetParam().program == std::string("dragonn"));
    return;
  }
  if (program.codec->phases.size() > 1) {  // all of them alike
    for (std::size_t phase = 0; phase < program.codec->phases.size(); ++phase)
      EXPECT_EQ(lang::only_interpreted(of.of(program.settings, phase).program), nullptr) << phase;
    EXPECT_EQ(how.find(';'), std::string::npos) << how;
  } else if (const char* why = lang::only_interpreted(of.of(program.settings).program)) {
    EXPECT_EQ(how, std::string("interpreted: ") + why);
    return;
  }
  EXPECT_NE(how.find("with tithe itself"), std::string::npos) << how;
}

const auto kName = [](const auto& of) { return std::to_string(of.index) + "_" + of.param.program; };
INSTANTIATE_TEST_SUITE_P(All, TwinSuite, testing::ValuesIn(kTwins), kName);

std::vector<Twin> of_several_phases() {
  std::vector<Twin> some;
  for (const Twin& twin : kTwins) {
    const std::string_view spec = twin.spec;
    if (find_codec(spec.substr(0, spec.find(':')))->phases.size() > 1) some.push_back(twin);
  }
  return some;
}
INSTANTIATE_TEST_SUITE_P(All, TwinRounds, testing::ValuesIn(of_several_phases()), kName);

}  // namespace
}  // namespace tithe::conformance
