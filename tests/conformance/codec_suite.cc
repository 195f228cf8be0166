// SPDX-License-Identifier: Apache-2.0
// Holds every impl of every codec to the promises at the top of tithe/codec.h, on every instruction set this
// machine has. Nothing to edit for a new codec: its line in codecs.def brings it in.
#include <gtest/gtest.h>

#include <algorithm>

#include "codec_case.h"
#include "phases.h"

namespace tithe::conformance {
namespace {

using Payload = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

// Of Traits::adds_transformed.
constexpr double kTransformRounding = 0x1p-20;

double largest(const Floats& v) {
  double most = 0;
  for (const float x : v) most = std::max(most, std::abs(double{x}));
  return most;
}

enum class Keep { kNothing, kApart, kInPlace };  // what becomes of what is not sent
constexpr Keep kKeeps[] = {Keep::kNothing, Keep::kApart, Keep::kInPlace};

struct Sent {
  Payload payload;
  Floats left;  // means nothing if nothing is kept
  bool finite = true;
};

class CodecSuite : public testing::TestWithParam<CodecCase> {
 protected:
  const Codec& codec = *GetParam().codec;
  const Impl& impl = *GetParam().impl;
  const Impl& reference = codec.reference();
  const Phase& phase = codec.phases.back();  // the one whose payloads become values
  const std::size_t n = GetParam().n;
  const OnlyTarget only{GetParam().target};
  Call call = call_of();

  Call call_of() const {
    Call c;
    c.settings = GetParam().settings;
    c.seed = 7;
    c.shared_seed = 8;
    c.round = 3;
    c.tensor = 2;
    c.chunk = 1;
    c.phase = phases::last_phase(codec);
    return c;
  }
  std::size_t bound() const { return phase.bound(call.settings, n); }
  Status check(ByteView p) const { return phase.check(call.settings, n, p); }

  // The call with scratch of the least size that is allowed, full of rubbish.
  template <typename Use>
  auto with_scratch(Use use) {
    const std::size_t bytes = codec.scratch(call.settings, n);
    const std::size_t room = (bytes + 63) / 64 * 64 + 64;
    const std::unique_ptr<std::uint8_t, decltype(&std::free)> raw(
        static_cast<std::uint8_t*>(std::aligned_alloc(64, room)), std::free);
    std::memset(raw.get(), rubbish_ = static_cast<std::uint8_t>(rubbish_ * 5 + 1), room);
    Call c = call;
    c.scratch = {raw.get(), bytes};
    return use(c);
  }

  // Where there are earlier phases, what they agreed on does not depend on the values that a test sends.
  void SetUp() override { agree(1); }
  void agree(int workers) {
    if (codec.phases.size() == 1) return;
    const Floats x = values(Data::kHeavy, n, 1);
    context_ = with_scratch([&](const Call& c) {
      return phases::context_of(workers, codec, reference, c, {x.data(), nullptr, nullptr, n});
    });
    call.context = context_;
  }

  // shift: elements by which every pointer is moved off its natural place.
  Sent encode(const Impl& by, const Floats& grad, const Floats& before, Keep keep, std::size_t shift = 0) {
    const Floats& residual = keep == Keep::kNothing ? grad : before;
    Exact<float> g(grad.data(), n, shift), r(residual.data(), n, shift), apart(residual.data(), n, shift);
    Exact<std::uint8_t> out(bound(), shift);
    Carry carry{g.data(), nullptr, nullptr, n};
    if (keep != Keep::kNothing) carry.residual = r.data();
    if (keep != Keep::kNothing) carry.left = keep == Keep::kInPlace ? r.data() : apart.data();
    Result<Encoded> done = with_scratch([&](const Call& c) { return by.encode(c, carry, out.span()); });
    EXPECT_TRUE(done.ok()) << done.status().what();
    Sent sent;
    if (!done.ok()) return sent;
    EXPECT_LE(done->bytes, bound());
    sent.finite = done->finite;
    sent.payload.assign(out.data(), out.data() + done->bytes);
    const float* left = keep == Keep::kInPlace ? r.data() : apart.data();
    sent.left.assign(left, left + n);
    EXPECT_TRUE(same_bits(grad, Floats(g.data(), g.data() + n))) << "the gradient was written to";
    return sent;
  }
  Sent encode(Data data, unsigned seed = 1, Keep keep = Keep::kNothing) {
    return encode(impl, values(data, n, seed), values(data, n, seed + 1000), keep);
  }

  // out starts as `before`; base is `before` too if it is to be added in place.
  enum class Base { kNull, kOther, kInPlace };
  Status decode(const Impl& by, const std::vector<Payload>& payloads, Base base, const Floats& onto,
                float divide, Floats& out, std::size_t shift = 0) {
    std::vector<Exact<std::uint8_t>> exact;
    std::vector<ByteView> views;
    for (const Payload& p : payloads) exact.emplace_back(p.data(), p.size(), shift);
    for (auto& e : exact) views.push_back(e.span());
    Exact<float> other(base == Base::kNull ? out.data() : onto.data(), n, shift), into(out.data(), n, shift);
    if (base == Base::kInPlace) std::copy(onto.begin(), onto.end(), into.data());
    Merge merge{nullptr, divide};
    if (base != Base::kNull) merge.base = base == Base::kOther ? other.data() : into.data();
    const Status s = with_scratch([&](const Call& c) { return by.decode(c, views, merge, into.span()); });
    out.assign(into.data(), into.data() + n);
    return s;
  }
  Floats decode_one(const Payload& payload) {
    Floats out(n, 99.0F);
    const Status s = decode(impl, {payload}, Base::kNull, {}, 1, out);
    EXPECT_TRUE(s.ok()) << s.what();
    return out;
  }

 private:
  std::uint8_t rubbish_ = 0x5a;
  Payload context_;
};

TEST_P(CodecSuite, PureEqualToTheReference) {
  for (const Data data : data_for(n))
    for (const Keep keep : kKeeps) {
      SCOPED_TRACE(kDataNames[static_cast<int>(data)]);
      const Floats grad = values(data, n, 1), residual = values(data, n, 2);
      const Sent want = encode(reference, grad, residual, keep);
      for (const std::size_t shift : {0, 1, 3}) {
        const Sent got = encode(impl, grad, residual, keep, shift);
        ASSERT_EQ(got.payload.size(), want.payload.size());
        ASSERT_TRUE(got.payload == want.payload) << "payload, keep " << static_cast<int>(keep);
        ASSERT_TRUE(same_bits(got.left, want.left)) << "left, keep " << static_cast<int>(keep);
        ASSERT_EQ(got.finite, want.finite);
      }
    }
}

TEST_P(CodecSuite, PureDecodeEqualToTheReference) {
  for (const Data data : data_for(n)) {
    SCOPED_TRACE(kDataNames[static_cast<int>(data)]);
    const Floats base = values(data, n, 9);
    std::vector<Payload> payloads;
    for (unsigned p = 0; p < 6; ++p) {
      for (const Base kind : {Base::kNull, Base::kOther, Base::kInPlace})
        for (const float divide : {1.0F, 3.0F}) {
          Floats want(n), got(n);
          ASSERT_TRUE(decode(reference, payloads, kind, base, divide, want).ok());
          ASSERT_TRUE(decode(impl, payloads, kind, base, divide, got, p % 3).ok());
          ASSERT_TRUE(same_bits(got, want)) << p << " payloads, base " << static_cast<int>(kind);
        }
      payloads.push_back(encode(reference, values(data, n, 20 + p), {}, Keep::kNothing).payload);
    }
  }
}

TEST_P(CodecSuite, BoundedNothingPastTheEnd) {
  constexpr std::size_t kGuard = 256;
  for (const Data data : data_for(n)) {
    const Floats grad = values(data, n, 1);
    Payload out(bound() + kGuard, 0xA5);
    Floats left(n + kGuard, 99.0F), residual = values(data, n, 2);
    Result<Encoded> done = with_scratch([&](const Call& c) {
      return impl.encode(c, {grad.data(), residual.data(), left.data(), n}, {out.data(), bound()});
    });
    ASSERT_TRUE(done.ok());
    ASSERT_LE(done->bytes, bound());
    if (codec.traits.fixed_size) {
      ASSERT_EQ(done->bytes, bound());
    }
    for (std::size_t i = done->bytes; i < out.size(); ++i) ASSERT_EQ(out[i], 0xA5) << "byte " << i;
    for (std::size_t i = n; i < left.size(); ++i) ASSERT_EQ(left[i], 99.0F) << "left " << i;
  }
}

TEST_P(CodecSuite, BoundedRefusesLessRoom) {
  if (bound() == 0) GTEST_SKIP() << "needs no room";
  const Floats grad = values(Data::kGaussian, n, 1);
  Floats left(n, 99.0F);
  Exact<std::uint8_t> out(bound() - 1);
  Result<Encoded> done = with_scratch([&](const Call& c) {
    return impl.encode(c, {grad.data(), grad.data(), left.data(), n}, out.span());
  });
  EXPECT_EQ(done.status().code(), Code::kTooSmall);
  EXPECT_EQ(left, Floats(n, 99.0F));
  for (const std::uint8_t b : out.span()) ASSERT_EQ(b, 0);
}

TEST_P(CodecSuite, FaithfulTakenIsSentPlusLeft) {
  for (const Data data : data_for(n))
    for (const Keep keep : {Keep::kApart, Keep::kInPlace}) {
      SCOPED_TRACE(kDataNames[static_cast<int>(data)]);
      const Floats grad = values(data, n, 1), residual = values(data, n, 1001);
      const Sent sent = encode(data, 1, keep);
      const Floats decoded = decode_one(sent.payload);
      for (std::size_t i = 0; i < n; ++i) {
        const float taken = grad[i] + residual[i];
        if (codec.traits.lossless) {
          ASSERT_EQ(decoded[i], taken) << i;
        }
        if (codec.traits.exact_ledger) {
          ASSERT_EQ(decoded[i] + sent.left[i], taken) << i;
        } else {
          const double off = double{decoded[i]} + double{sent.left[i]} - double{taken};
          ASSERT_LE(std::abs(off), ulp(std::max(std::abs(taken), std::abs(decoded[i])))) << i;
        }
      }
    }
}

TEST_P(CodecSuite, AdditiveMergeIsDecodeThenAdd) {
  for (const Data data : {Data::kGaussian, Data::kHeavy, Data::kSparse, Data::kZeros, Data::kTies}) {
    SCOPED_TRACE(kDataNames[static_cast<int>(data)]);
    const Floats onto = values(data, n, 5);
    std::vector<Payload> payloads;
    std::vector<Floats> decoded;
    for (unsigned p = 0; p < 5; ++p) {
      payloads.push_back(encode(data, 10 + p).payload);
      decoded.push_back(decode_one(payloads.back()));
      for (const Base base : {Base::kNull, Base::kOther, Base::kInPlace})
        for (const float divide : {1.0F, 3.0F, 4.0F}) {
          Floats out(n, 99.0F);
          const Status s = decode(impl, payloads, base, onto, divide, out);
          ASSERT_TRUE(s.ok()) << s.what();
          double terms = base == Base::kNull ? 0 : largest(onto);
          for (const Floats& d : decoded) terms += largest(d);
          const double allowed = codec.traits.adds_transformed ? kTransformRounding * terms / divide : 0;
          for (std::size_t i = 0; i < n; ++i) {
            float want = base == Base::kNull ? decoded[0][i] : onto[i];
            for (std::size_t q = base == Base::kNull ? 1 : 0; q <= p; ++q) want += decoded[q][i];
            want /= divide;
            ASSERT_LE(std::abs(double{out[i]} - double{want}), allowed)
                << "value " << i << ", " << p + 1 << " payloads";
          }
        }
    }
  }
}

// What decode says about bytes that may be wrong: never a read past them, nothing written unless it is Ok, and
// the same verdict as check and the reference.
TEST_P(CodecSuite, HonestAboutDamage) {
  const Floats before(n, 99.0F);
  const auto answer = [&](const Payload& damaged) {
    Floats got = before, want = before;
    const Status s = decode(impl, {damaged}, Base::kNull, {}, 1, got);
    const Status r = decode(reference, {damaged}, Base::kNull, {}, 1, want);
    EXPECT_EQ(s.code(), r.code());
    if (codec.phases.size() == 1 || !check(damaged).ok()) {  // decode knows the context, check does not
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

TEST_P(CodecSuite, HonestOneBadPayloadStopsAll) {
  const Payload good = encode(Data::kGaussian).payload;
  Payload bad = good;
  bad.push_back(0);
  Floats out(n, 99.0F);
  EXPECT_EQ(decode(impl, {good, bad}, Base::kNull, {}, 1, out).code(), Code::kCorrupt);
  EXPECT_EQ(out, Floats(n, 99.0F));
}

TEST_P(CodecSuite, FiniteSaysSoOfFiniteValues) {
  for (const Data data : data_for(n))
    for (const Keep keep : kKeeps) EXPECT_TRUE(encode(data, 1, keep).finite) << static_cast<int>(data);
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

// The phases before the last: the same bytes by every impl, within their bound, checked as honestly.
TEST_P(CodecSuite, EarlierPhasesArePureBoundedAndHonest) {
  for (const Data data : data_for(n)) {
    const Floats x = values(data, n, 1), residual = values(data, n, 2);
    const Carry carry{x.data(), residual.data(), nullptr, n};
    Payload context;
    for (std::uint8_t p = 0; p < phases::last_phase(codec); ++p) {
      const auto by = [&](const Impl& which) {
        Payload out(codec.phases[p].bound(call.settings, n));
        Result<Encoded> done = with_scratch([&](Call c) {
          c.phase = p;
          c.context = context;
          return which.encode(c, carry, out);
        });
        EXPECT_TRUE(done.ok() && done->finite) << done.status().what();
        if (done.ok()) out.resize(done->bytes);
        return out;
      };
      Payload good = by(reference);
      ASSERT_EQ(by(impl), good) << "phase " << int{p};
      ASSERT_TRUE(codec.phases[p].check(call.settings, n, good).ok());
      const std::size_t step = std::max<std::size_t>(1, good.size() / 64);
      for (std::size_t k = 0; k < good.size(); k += step)
        EXPECT_EQ(codec.phases[p].check(call.settings, n, ByteView(good).first(k)).code(), Code::kCorrupt);
      context = std::move(good);
    }
  }
}

class CombineSuite : public CodecSuite {
 protected:
  void SetUp() override { agree(2); }
};

// combine(a, b) is the encoding of what a and b stand for, added; the rounding is in left. Where payloads add in
// another domain, it decodes to what a and b stand for, added, but for the rounding that the trait allows.
TEST_P(CombineSuite, CombineAddsAsOneEncodeWould) {
  const auto combine = phase.combine;
  for (const Data data : data_for(n)) {
    SCOPED_TRACE(kDataNames[static_cast<int>(data)]);
    const Payload a = encode(data, 1).payload, b = encode(data, 2).payload;
    const Floats da = decode_one(a), db = decode_one(b), before = values(data, n, 3);
    Floats sum(n);
    for (std::size_t i = 0; i < n; ++i) sum[i] = da[i] + db[i];
    const Payload want = encode(reference, sum, {}, Keep::kNothing).payload;
    const bool transformed = codec.traits.adds_transformed;
    const double rounding = transformed ? kTransformRounding * (largest(da) + largest(db)) : 0;
    for (const std::size_t shift : {0, 1})
      for (const bool keeps : {false, true}) {
        Exact<std::uint8_t> acc(a.data(), a.size(), shift), in(b.data(), b.size(), shift);
        Exact<float> left(before.data(), n, shift);
        const Status s = combine(call.settings, n, acc.span(), in.span(), keeps ? left.data() : nullptr);
        ASSERT_TRUE(s.ok()) << s.what();
        const Payload got(acc.data(), acc.data() + a.size());
        if (!transformed) {
          ASSERT_TRUE(got == want);
        }
        const Floats now = decode_one(got);
        for (std::size_t i = 0; i < n && (keeps || transformed); ++i) {
          const double booked = keeps ? double{left.data()[i]} - double{before[i]} : 0;
          const double off = double{now[i]} + booked - double{da[i]} - double{db[i]};
          const float most =
              std::max({std::abs(da[i]), std::abs(db[i]), std::abs(before[i]), std::abs(now[i])});
          ASSERT_LE(std::abs(off), ulp(most) + rounding) << i;
        }
      }
  }
}

TEST_P(CombineSuite, CombineRefusesOtherSizes) {
  const auto combine = phase.combine;
  const Payload good = encode(Data::kGaussian).payload;
  Payload longer = good;
  longer.push_back(1);
  Payload acc = good;
  EXPECT_EQ(combine(call.settings, n, acc, longer, nullptr).code(), Code::kCorrupt);
  EXPECT_EQ(acc, good);
  EXPECT_EQ(combine(call.settings, n, longer, good, nullptr).code(), Code::kCorrupt);
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
INSTANTIATE_TEST_SUITE_P(All, CodecSuite, testing::ValuesIn(codec_cases()), kName);
INSTANTIATE_TEST_SUITE_P(All, CombineSuite, testing::ValuesIn(combine_cases()), kName);

}  // namespace
}  // namespace tithe::conformance
