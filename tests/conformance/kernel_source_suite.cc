// SPDX-License-Identifier: Apache-2.0
// The programs from which GPU kernels of C++ codecs are generated (codecs/programs.def), interpreted: the same bytes,
// residuals and values as the codec in C++, and the same Status for damaged payloads.
#include <gtest/gtest.h>

#include <random>

#include "codec_case.h"
#include "lang/loader.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

using harness::Base;
using harness::EncodeOutput;
using harness::Keep;

struct Row {
  const char* program;
  const char* settings;
  const char* spec;
};
constexpr Row kRows[] = {
#define TITHE_PROGRAM(file, settings, spec) {#file, settings, spec},
#include "../../codecs/programs.def"
#undef TITHE_PROGRAM
};

// Not prepared, so that nothing is compiled.
Spec program_of(const Row& row) {
  std::string text = std::string(TITHE_SOURCE_DIR "/codecs/") + row.program + ".codec";
  if (*row.settings != 0) text += std::string(":") + row.settings;
  const Result<Spec> spec = parse_spec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status().what();
  return spec.ok() ? *spec : Spec();
}

class KernelSourceSuite : public testing::TestWithParam<Row> {
 protected:
  const Spec program = program_of(GetParam()), codec = harness::spec_of(GetParam().spec);

  void SetUp() override { ASSERT_TRUE(program.codec != nullptr && codec.codec != nullptr); }

  Call call_of(const Spec& spec) const {
    return {.settings = spec.settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  }
  EncodeOutput encode(const Spec& spec, const Floats& grad, const Floats& residual, Keep keep) const {
    return harness::encode(*spec.codec, spec.codec->reference(), call_of(spec), grad, residual, keep);
  }
  Status check(const Spec& spec, std::size_t n, const Payload& payload) const {
    return spec.codec->reference().check(call_of(spec), n, payload);
  }
  bool reads_finite(const Spec& spec, std::size_t n, const Payload& payload) const {
    Floats out(n);
    const std::vector<ByteView> views{ByteView(payload)};
    EXPECT_TRUE(spec.codec->reference().decode(call_of(spec), views, {}, out).ok());
    return std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); });
  }
  // True if the payload's head matches these settings. A codec in C++ reads its settings from the payload, so it
  // accepts payloads written with others; a program uses its own settings.
  bool own_settings(const Payload& payload) const {
    const lang::Checked& of = program.codec->program->of(program.settings).program;
    if (of.items.empty()) return true;  // both use their own settings
    const Payload good = encode(program, {}, {}, Keep::kResidualOut).payload;
    const std::size_t head = std::min(lang::once_bytes(of), payload.size());
    const bool known = std::all_of(of.items.begin(), of.items.end(), [](const lang::Item& item) {
      return !item.once || item.input == lang::kNone;
    });
    return !known ||
           std::equal(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(head), good.begin());
  }
  Floats decode(const Spec& spec, std::size_t n, const std::vector<Payload>& payloads, Base base,
                float divide) const {
    Floats out(n, 99.0F);
    const Status s = harness::decode(*spec.codec, spec.codec->reference(), call_of(spec), payloads, base,
                                     values(Data::kGaussian, n, 77), divide, out);
    EXPECT_TRUE(s.ok()) << s.what();
    return out;
  }
  void same_bytes(std::size_t n) const;
  void same_verdict(std::size_t n, std::size_t& refused) const;
};

void KernelSourceSuite::same_bytes(std::size_t n) const {
  EXPECT_EQ(program.codec->phases[0].bound(program.settings, n),
            codec.codec->phases[0].bound(codec.settings, n))
      << n;
  std::vector<Payload> payloads;
  for (const Data data : data_for(n))
    for (const Keep keep : {Keep::kResidualOut, Keep::kApart, Keep::kInPlace}) {
      SCOPED_TRACE(testing::Message() << n << " " << name(data) << ", " << name(keep));
      const Floats grad = values(data, n, 1), residual = values(data, n, 2);
      const EncodeOutput want = encode(codec, grad, residual, keep);
      const EncodeOutput got = encode(program, grad, residual, keep);
      ASSERT_EQ(got.finite, want.finite);
      ASSERT_EQ(first_difference(got.payload, want.payload), "");
      ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "");
      payloads.push_back(want.payload);
    }
  for (const Base base : {Base::kNull, Base::kOther, Base::kInPlace})
    for (const float divide : {1.0F, 3.0F}) {
      const Floats want = decode(codec, n, payloads, base, divide);
      ASSERT_EQ(first_difference(decode(program, n, payloads, base, divide), want), "") << n;
    }
}

void KernelSourceSuite::same_verdict(std::size_t n, std::size_t& refused) const {
  std::mt19937 random(5);
  const Payload good = encode(codec, values(Data::kHeavy, n, 1), {}, Keep::kResidualOut).payload;
  for (int turn = 0; turn < 400; ++turn) {
    Payload bad = good;
    if (turn % 8 == 0) bad.resize(random() % (good.size() + 3));
    for (int k = 0; k < 1 + turn % 3 && !bad.empty(); ++k)
      bad[turn % 2 == 0 ? random() % bad.size() : random() % std::min<std::size_t>(bad.size(), 16)] ^=
          static_cast<std::uint8_t>(1U << random() % 8);
    const Status theirs = check(codec, n, bad), mine = check(program, n, bad);
    if (!own_settings(bad)) {
      ASSERT_EQ(mine.code(), Code::kCorrupt) << n;
    } else {
      // A program reads finite values only; a codec of floats in C++ reads codes of infinity, which its encoder never
      // writes.
      const bool reads = theirs.ok() && (mine.ok() || reads_finite(codec, n, bad));
      ASSERT_EQ(mine.code(), reads ? Code::kOk : Code::kCorrupt)
          << n << ": " << mine.what() << " / " << theirs.what();
    }
    refused += theirs.ok() ? 0 : 1;
  }
}

TEST_P(KernelSourceSuite, SameBytesResidualsAndValues) {
  for (const std::size_t n : kSizes) same_bytes(n);
}

// At the limits of the float range the two may differ in the values they report, but not in the results for other
// values.
TEST_P(KernelSourceSuite, SameForExtremeFloats) {
  for (const std::size_t n : {1, 33, 2049})
    for (const Extreme kind : kExtremes) {
      SCOPED_TRACE(testing::Message() << n << " " << harness::name(kind));
      const Floats grad = extremes(kind, n, 1), before = extremes(Extreme::kBottom, n, 2);
      const EncodeOutput want = encode(codec, grad, before, Keep::kApart),
                         got = encode(program, grad, before, Keep::kApart);
      if (kind == Extreme::kBottom) {
        ASSERT_TRUE(got.finite);
      }
      if (!got.finite || !want.finite) continue;
      ASSERT_EQ(first_difference(got.payload, want.payload), "");
      ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "");
    }
}

TEST_P(KernelSourceSuite, SameStatusForDamagedBytes) {
  std::size_t refused = 0;
  for (const std::size_t n : {0, 1, 9, 1025}) same_verdict(n, refused);
  EXPECT_GT(refused, 100U);  // some inputs have no invalid encodings
}

const auto kName = [](const auto& of) { return std::to_string(of.index) + "_" + of.param.program; };
INSTANTIATE_TEST_SUITE_P(All, KernelSourceSuite, testing::ValuesIn(kRows), kName);

}  // namespace
}  // namespace tithe::conformance
