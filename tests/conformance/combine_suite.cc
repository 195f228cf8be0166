// SPDX-License-Identifier: Apache-2.0
// Tests codecs whose payloads can be added against their law for the sum.
#include "codec_fixture.h"

namespace tithe::conformance {
namespace {

class CombineSuite : public CodecSuite {
 protected:
  void SetUp() override { agree(2); }
  harness::Sum combine(const Payload& acc, const Payload& in, const Floats& residual_out, bool keeps,
                       std::size_t shift = 0) const {
    return harness::combine(impl, call, acc, in, residual_out, keeps, shift);
  }
};

// combine(a, b) is the encoding of a + b, with the rounding error in residual_out. If payloads are added in another
// domain, the result decodes to a + b within the rounding error that the trait allows.
TEST_P(CombineSuite, CombineEqualsOneEncodeOfTheSum) {
  for (const Data data : data_for(n)) {
    SCOPED_TRACE(name(data));
    const Payload a = encode(data, 1).payload, b = encode(data, 2).payload;
    const Floats da = decode_one(a), db = decode_one(b), before = values(data, n, 3);
    Floats sum(n);
    for (std::size_t i = 0; i < n; ++i) sum[i] = da[i] + db[i];
    const Payload want = encode(reference, sum, {}, Keep::kNothing).payload;
    const bool transformed = codec.traits.adds_transformed;
    const double rounding = transformed ? kTransformRounding * (largest(da) + largest(db)) : 0;
    for (const std::size_t shift : {0, 1})
      for (const bool keeps : {false, true}) {
        const harness::Sum got = combine(a, b, before, keeps, shift);
        ASSERT_EQ(got.code, Code::kOk);
        if (!transformed) {
          ASSERT_TRUE(got.acc == want);
        }
        const Floats now = decode_one(got.acc);
        for (std::size_t i = 0; i < n && (keeps || transformed); ++i) {
          const double booked = keeps ? double{got.residual_out[i]} - double{before[i]} : 0;
          const double off = double{now[i]} + booked - double{da[i]} - double{db[i]};
          const float most =
              std::max({std::abs(da[i]), std::abs(db[i]), std::abs(before[i]), std::abs(now[i])});
          ASSERT_LE(std::abs(off), ulp(most) + rounding) << i;
        }
      }
  }
}

TEST_P(CombineSuite, CombineRefusesOtherSizes) {
  const Payload good = encode(Data::kGaussian).payload;
  Payload longer = good;
  longer.push_back(1);
  const harness::Sum refused = combine(good, longer, Floats(n), false);
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_EQ(refused.acc, good);
  EXPECT_EQ(combine(longer, good, Floats(n), false).code, Code::kCorrupt);
}

std::vector<CodecCase> combine_cases() {
  std::vector<CodecCase> some = codec_cases();
  std::erase_if(some, [](const CodecCase& c) {
    const auto laws = c.codec->phases.back().laws;
    return std::find(laws.begin(), laws.end(), Law::kSum) == laws.end();
  });
  return some;
}

const auto kName = [](const auto& info) { return name_of(info.param); };
INSTANTIATE_TEST_SUITE_P(All, CombineSuite, testing::ValuesIn(combine_cases()), kName);

}  // namespace
}  // namespace tithe::conformance
