// SPDX-License-Identifier: Apache-2.0
// Tests every impl of every codec against the contract at the top of tithe/seam/codec.h, on every instruction set of
// this machine. A new codec is included through its line in codecs.def.
#include "codec_fixture.h"

namespace tithe::conformance {
namespace {

using harness::Row;

constexpr Base kBases[] = {Base::kNull, Base::kOther, Base::kInPlace};

// The product of the lists for a small n, which has whole vectors and a rest; their pairs for a larger one.
std::vector<Row> some_for(std::size_t n, const std::vector<std::size_t>& sizes) {
  return n > kSmall ? harness::pairs_or_product(sizes) : harness::product(sizes);
}

TEST_P(CodecSuite, PureEqualToTheReference) {
  for (const Data data : data_for(n))
    for (const Keep keep : kKeeps) {
      SCOPED_TRACE(name(data));
      const Floats grad = values(data, n, 1), residual = values(data, n, 2);
      const EncodeOutput want = encode(reference, grad, residual, keep);
      for (const std::size_t shift : {0, 1, 3}) {
        const EncodeOutput got = encode(impl, grad, residual, keep, shift);
        ASSERT_EQ(first_difference(got.payload, want.payload), "") << "payload, " << name(keep);
        ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "")
            << "residual_out, " << name(keep);
        ASSERT_EQ(got.finite, want.finite);
      }
    }
}

TEST_P(CodecSuite, PureDecodeEqualToTheReference) {
  for (const Data data : data_for(n)) {
    SCOPED_TRACE(name(data));
    const Floats base = values(data, n, 9);
    std::vector<Payload> payloads;
    for (unsigned p = 0; p < 5; ++p)
      payloads.push_back(encode(reference, values(data, n, 20 + p), {}, Keep::kNothing).payload);
    for (const Row& row : some_for(n, {6, std::size(kBases), 2})) {
      const std::vector<Payload> first(payloads.begin(),
                                       payloads.begin() + static_cast<std::ptrdiff_t>(row[0]));
      const float divide = row[2] == 0 ? 1.0F : 3.0F;
      Floats want(n), got(n);
      ASSERT_TRUE(decode(reference, first, kBases[row[1]], base, divide, want).ok());
      ASSERT_TRUE(decode(impl, first, kBases[row[1]], base, divide, got, row[0] % 3).ok());
      ASSERT_EQ(first_difference(got, want), "")
          << row[0] << " payloads, base " << row[1] << ", divided by " << divide;
    }
  }
}

TEST_P(CodecSuite, BoundedNothingPastTheEnd) {
  constexpr std::size_t kGuard = 256;
  for (const Data data : data_for(n)) {
    const Floats grad = values(data, n, 1);
    Payload out(bound() + kGuard, 0xA5);
    Floats residual_out(n + kGuard, 99.0F), residual = values(data, n, 2);
    Result<Encoded> done = with_scratch([&](const Call& c) {
      return impl.encode(c, {grad.data(), residual.data(), residual_out.data(), n}, {out.data(), bound()});
    });
    ASSERT_TRUE(done.ok());
    ASSERT_LE(done->bytes, bound());
    if (codec.traits.fixed_size) {
      ASSERT_EQ(done->bytes, bound());
    }
    for (std::size_t i = done->bytes; i < out.size(); ++i) ASSERT_EQ(out[i], 0xA5) << "byte " << i;
    for (std::size_t i = n; i < residual_out.size(); ++i)
      ASSERT_EQ(residual_out[i], 99.0F) << "residual_out " << i;
  }
}

TEST_P(CodecSuite, BoundedRefusesLessRoom) {
  if (bound() == 0) GTEST_SKIP() << "needs no room";
  const Floats grad = values(Data::kGaussian, n, 1);
  Floats residual_out(n, 99.0F);
  Exact<std::uint8_t> out(bound() - 1);
  Result<Encoded> done = with_scratch([&](const Call& c) {
    return impl.encode(c, {grad.data(), grad.data(), residual_out.data(), n}, out.span());
  });
  EXPECT_EQ(done.status().code(), Code::kTooSmall);
  EXPECT_EQ(residual_out, Floats(n, 99.0F));
  for (const std::uint8_t b : out.span()) ASSERT_EQ(b, 0);
}

TEST_P(CodecSuite, FaithfulTakenIsSentPlusLeft) {
  for (const Data data : data_for(n))
    for (const Keep keep : {Keep::kApart, Keep::kInPlace}) {
      SCOPED_TRACE(name(data));
      const Floats grad = values(data, n, 1), residual = values(data, n, 1001);
      const EncodeOutput sent = encode(data, 1, keep);
      const Floats decoded = decode_one(sent.payload);
      for (std::size_t i = 0; i < n; ++i) {
        const float taken = grad[i] + residual[i];
        if (codec.traits.lossless) {
          ASSERT_EQ(decoded[i], taken) << i;
        }
        if (codec.traits.exact_ledger) {
          ASSERT_EQ(decoded[i] + sent.residual_out[i], taken) << i;
        } else {
          const double off = double{decoded[i]} + double{sent.residual_out[i]} - double{taken};
          ASSERT_LE(std::abs(off), ulp(std::max(std::abs(taken), std::abs(decoded[i])))) << i;
        }
      }
    }
}

TEST_P(CodecSuite, AdditiveMergeIsDecodeThenAdd) {
  constexpr Data kAll[] = {Data::kHeavy, Data::kSparse, Data::kTies, Data::kGaussian, Data::kZeros};
  const std::span<const Data> some = std::span(kAll).first(n > kLargestOfAll ? 3 : std::size(kAll));
  constexpr float kDivides[] = {1.0F, 3.0F, 4.0F};
  constexpr std::size_t kMaxPayloads = 5;
  for (std::size_t d = 0; d < some.size(); ++d) {
    const Data data = some[d];
    SCOPED_TRACE(name(data));
    const Floats onto = values(data, n, 5);
    std::vector<Payload> payloads;
    std::vector<Floats> decoded;
    for (const Row& row : some_for(n, {some.size(), kMaxPayloads, std::size(kBases), std::size(kDivides)})) {
      if (row[0] != d) continue;
      for (auto p = static_cast<unsigned>(payloads.size()); p < kMaxPayloads; ++p) {
        payloads.push_back(encode(data, 10 + p).payload);
        decoded.push_back(decode_one(payloads.back()));
      }
      const std::size_t count = row[1] + 1;
      const Base base = kBases[row[2]];
      const float divide = kDivides[row[3]];
      Floats out(n, 99.0F);
      const std::vector<Payload> first(payloads.begin(),
                                       payloads.begin() + static_cast<std::ptrdiff_t>(count));
      const Status s = decode(impl, first, base, onto, divide, out);
      ASSERT_TRUE(s.ok()) << s.what();
      double terms = base == Base::kNull ? 0 : largest(onto);
      for (std::size_t p = 0; p < count; ++p) terms += largest(decoded[p]);
      const double allowed = codec.traits.adds_transformed ? kTransformRounding * terms / divide : 0;
      for (std::size_t i = 0; i < n; ++i) {
        float want = base == Base::kNull ? decoded[0][i] : onto[i];
        for (std::size_t q = base == Base::kNull ? 1 : 0; q < count; ++q) want += decoded[q][i];
        want /= divide;
        ASSERT_LE(std::abs(double{out[i]} - double{want}), allowed)
            << "value " << i << ": expected " << want << ", got " << out[i] << ", " << count << " payloads";
      }
    }
  }
}

// Damaged payloads: decode never reads past them, writes nothing unless it returns Ok, and returns the same Status as
// check and the reference.
TEST_P(CodecSuite, HonestAboutDamage) {
  const Floats before(n, 99.0F);
  const auto answer = [&](const Payload& damaged) {
    Floats got = before, want = before;
    const Status s = decode(impl, {damaged}, Base::kNull, {}, 1, got);
    const Status r = decode(reference, {damaged}, Base::kNull, {}, 1, want);
    EXPECT_EQ(s.code(), r.code());
    if (codec.phases.size() == 1 || !check(damaged).ok()) {  // decode has the context, check does not
      EXPECT_EQ(s.code(), check(damaged).code());
    }
    if (!s.ok()) {
      EXPECT_EQ(s.code(), Code::kCorrupt);
      EXPECT_EQ(got, before) << "written to";
    } else {
      for (std::size_t i = 0; i < n; ++i)
        EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << i;
    }
    return s;
  };
  const Payload good = encode(Data::kHeavy).payload;
  ASSERT_TRUE(answer(good).ok());

  const std::size_t step = std::max<std::size_t>(1, good.size() / 64);
  for (std::size_t k = 0; k < good.size(); k += step)
    EXPECT_FALSE(answer(Payload(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(k))).ok()) << k;
  for (const std::size_t more : {1, 2, 4, 8, 64}) {
    Payload longer(good.size() + more);
    std::copy(good.begin(), good.end(), longer.begin());
    EXPECT_FALSE(answer(longer).ok()) << more;
  }
  std::mt19937 rng(3);
  const std::size_t bits = 8 * good.size();
  const std::size_t flips = std::min<std::size_t>(bits, n > 5000 ? 64 : 512);
  for (std::size_t k = 0; k < flips; ++k) {
    const std::size_t bit = bits <= 512 ? k : k < 64 ? k : rng() % bits;
    Payload flipped = good;
    flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ 1U << (bit % 8));
    (void)answer(flipped).ok();
    if (HasFailure()) FAIL() << "bit " << bit;
  }
  for (int k = 0; k < 16; ++k) {
    Payload noise(good.size());
    for (auto& b : noise) b = static_cast<std::uint8_t>(rng());
    (void)answer(noise).ok();
  }
}

// Bits behind the last value belong to the payload, so check must test them. A bit of the last byte that may take
// either value for all inputs, without changing any value, is unchecked padding.
TEST_P(CodecSuite, HonestAboutPadding) {
  if (n == 0 || n > kLargestOfAll) GTEST_SKIP() << "no values, or the same last byte as of fewer";
  // Exceptions: for a block of one value, minmax has a code between two equal ends, and fft the imaginary part of a
  // mean.
  if ((codec.name == "minmax" && n == 1) || (codec.name == "fft" && n % 4096 == 1))
    GTEST_SKIP() << "a code without effect, but not padding";
  int legal[8] = {}, says_something[8] = {};
  for (unsigned seed = 0; seed < 16; ++seed) {
    const Payload good = encode(Data::kGaussian, 50 + seed).payload;
    if (good.empty()) continue;
    const Floats want = decode_one(good);
    for (unsigned bit = 0; bit < 8; ++bit) {
      Payload flipped = good;
      flipped.back() = static_cast<std::uint8_t>(flipped.back() ^ 1U << bit);
      Floats got(n);
      if (!check(flipped).ok() || !decode(impl, {flipped}, Base::kNull, {}, 1, got).ok()) continue;
      ++legal[bit];
      says_something[bit] += !same_bits(got, want);
    }
  }
  for (unsigned bit = 0; bit < 8; ++bit)
    EXPECT_TRUE(legal[bit] == 0 || says_something[bit] != 0)
        << "bit " << bit << " of the last byte was legal " << legal[bit] << " times without changing a value";
}

TEST_P(CodecSuite, HonestOneInvalidPayloadRefusesAll) {
  const Payload good = encode(Data::kGaussian).payload;
  Payload bad = good;
  bad.push_back(0);
  Floats out(n, 99.0F);
  EXPECT_EQ(decode(impl, {good, bad}, Base::kNull, {}, 1, out).code(), Code::kCorrupt);
  EXPECT_EQ(out, Floats(n, 99.0F));
}

TEST_P(CodecSuite, FiniteAcceptsFiniteValues) {
  for (const Data data : data_for(n))
    for (const Keep keep : kKeeps) EXPECT_TRUE(encode(data, 1, keep).finite) << name(data);
}

TEST_P(CodecSuite, FiniteReportsNanAndInfAnywhere) {
  if (n == 0) GTEST_SKIP() << "no value";
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const Floats grad = values(Data::kGaussian, n, 1), residual = values(Data::kGaussian, n, 2);
  std::mt19937 rng(5);
  for (const std::size_t at : {std::size_t{0}, n / 2, n - 1, rng() % n, rng() % n})
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
      Floats g = grad, r = residual;
      g[at] = bad;
      for (const Keep keep : kKeeps) EXPECT_FALSE(encode(impl, g, r, keep).finite) << at << " " << bad;
      r[at] = bad;
      EXPECT_FALSE(encode(impl, grad, r, Keep::kInPlace).finite) << "residual " << at << " " << bad;
      g[at] = r[at] = kMax;
      EXPECT_FALSE(encode(impl, g, r, Keep::kInPlace).finite) << "overflow " << at;
    }
}

// At the limits of the float range a codec may report that it cannot send the values, and all impls report alike.
// Otherwise all sent values and residuals are finite, and the ledger balances.
TEST_P(CodecSuite, FiniteExtremesAreKeptOrReported) {
  for (const Extreme kind : kExtremes)
    for (const Keep keep : kKeeps)
      for (const int workers : {1, 3}) {
        if (workers > 1 && codec.phases.size() == 1) continue;
        SCOPED_TRACE(name(kind));
        const Floats grad = extremes(kind, n, 1), before = extremes(Extreme::kBottom, n, 2);
        if (!agree(workers, grad)) continue;
        const EncodeOutput want = encode(reference, grad, before, keep),
                           got = encode(impl, grad, before, keep, 1);
        ASSERT_EQ(got.finite, want.finite) << name(keep) << ", " << workers << " workers";
        if (kind == Extreme::kBottom) {
          ASSERT_TRUE(got.finite);
        }
        if (!got.finite) continue;
        ASSERT_EQ(first_difference(got.payload, want.payload), "");
        ASSERT_TRUE(check(got.payload).ok()) << check(got.payload).what();
        const Floats decoded = decode_one(got.payload);
        for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(std::isfinite(decoded[i])) << i << " of " << grad[i];
        if (keep == Keep::kNothing) continue;
        ASSERT_EQ(first_difference(got.residual_out, want.residual_out), "");
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_TRUE(std::isfinite(got.residual_out[i]))
              << i << " of " << grad[i] << ", sent " << decoded[i];
          const float taken = grad[i] + before[i];
          const double off = double{decoded[i]} + double{got.residual_out[i]} - double{taken};
          ASSERT_LE(std::abs(off),
                    codec.traits.exact_ledger ? 0 : ulp(std::max(std::abs(taken), std::abs(decoded[i]))))
              << i;
        }
      }
}

// Phases before the last: every impl writes the same bytes, within the bound, and checks as strictly.
TEST_P(CodecSuite, EarlierPhasesArePureBoundedAndHonest) {
  for (const Data data : data_for(n)) {
    const Floats x = values(data, n, 1), residual = values(data, n, 2);
    const EncodeInput input{x.data(), residual.data(), nullptr, n};
    Payload context;
    for (std::uint8_t p = 0; p < phases::last_phase(codec); ++p) {
      const auto by = [&](const Impl& which) {
        Payload out(codec.phases[p].bound(call.settings, n));
        Result<Encoded> done = with_scratch([&](Call c) {
          c.phase = p;
          c.context = context;
          return which.encode(c, input, out);
        });
        EXPECT_TRUE(done.ok() && done->finite) << done.status().what();
        if (done.ok()) out.resize(done->bytes);
        return out;
      };
      Payload good = by(reference);
      ASSERT_EQ(by(impl), good) << "phase " << int{p};
      Call checks = call;
      checks.phase = p;
      ASSERT_TRUE(impl.check(checks, n, good).ok());
      const std::size_t step = std::max<std::size_t>(1, good.size() / 64);
      for (std::size_t k = 0; k < good.size(); k += step)
        EXPECT_EQ(impl.check(checks, n, ByteView(good).first(k)).code(), Code::kCorrupt);
      context = std::move(good);
    }
  }
}

const auto kName = [](const auto& info) { return name_of(info.param); };
INSTANTIATE_TEST_SUITE_P(All, CodecSuite, testing::ValuesIn(codec_cases()), kName);

}  // namespace
}  // namespace tithe::conformance
