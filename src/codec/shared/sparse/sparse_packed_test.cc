// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codec/shared/sparse/sparse.h"
#include "codec/topk/topk.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sparse {
namespace {

// Every form but the plain one.
std::vector<Form> forms() {
  std::vector<Form> all;
  for (const ValueForm values : {ValueForm::kF32, ValueForm::kBF16, ValueForm::kF16, ValueForm::k8Bit,
                                 ValueForm::k4Bit, ValueForm::kInceptionn, ValueForm::k2Bit})
    for (const IndexForm indices : {IndexForm::kU32, IndexForm::kDelta, IndexForm::kBitmap, IndexForm::kAuto})
      if (const Form form{values, indices}; !form.plain()) all.push_back(form);
  return all;
}

std::vector<std::uint8_t> packed(const Form& form, std::size_t n, const std::vector<std::uint32_t>& index,
                                 const std::vector<float>& value, float* residual_out = nullptr) {
  std::vector<std::uint8_t> out(bound(form, index.size(), n));
  out.resize(write(form, n, index, value.data(), residual_out, out));
  return out;
}

// All subsets of a few indices; then random subsets of many indices at every density; then all indices at one end.
TEST(SparsePacked, IndicesRoundTripWithinTheBound) {
  std::mt19937 rng(7);
  const auto round_trip = [&](std::size_t n, const std::vector<std::uint32_t>& index) {
    std::vector<float> value;
    for (const std::uint32_t i : index) value.push_back(static_cast<float>(i % 251) - 125.0F);
    for (const Form& form : forms()) {
      std::vector<float> residual_out(n);
      const std::vector<std::uint8_t> p = packed(form, n, index, value, residual_out.data());
      for (const std::size_t most : {index.size(), index.size() + 1, 2 * index.size() + 3, n})
        ASSERT_LE(p.size(), bound(form, std::max(index.size(), std::min(most, n)), n)) << n << " " << most;
      ASSERT_TRUE(check("t", n, n, p).ok()) << check("t", n, n, p).what();
      std::size_t j = 0;
      for (Cursor c(p); !c.done(); c.next(), ++j) {
        ASSERT_EQ(c.index(), index[j]);
        ASSERT_EQ(c.value() + residual_out[c.index()], value[j]);
      }
      ASSERT_EQ(j, index.size());
      std::uint32_t got[Unpacker::kMaxPairs];
      float sent[Unpacker::kMaxPairs];
      Unpacker batches(p);
      Cursor c(p);
      while (const std::size_t size = batches.read(got, sent))
        for (std::size_t k = 0; k < size; ++k, c.next()) {
          ASSERT_FALSE(c.done());
          ASSERT_EQ(got[k], c.index());
          ASSERT_EQ(std::bit_cast<std::uint32_t>(sent[k]), std::bit_cast<std::uint32_t>(c.value()));
        }
      ASSERT_TRUE(c.done());

      std::vector<std::uint8_t> alone(indices_bound(form, index.size(), n));
      alone.resize(write_indices(form, n, index, alone));
      ASSERT_TRUE(check_indices("t", n, n, alone).ok()) << check_indices("t", n, n, alone).what();
      std::vector<std::uint32_t> all(index.size() + 1);
      IndexReader reader(alone);
      ASSERT_EQ(reader.read(std::span(all).first(1)), std::min<std::size_t>(1, index.size()));
      ASSERT_EQ(reader.read(std::span(all).subspan(1)),
                index.size() - std::min<std::size_t>(1, index.size()));
      all.pop_back();
      ASSERT_EQ(all, index);
      alone.push_back(0);
      ASSERT_FALSE(check_indices("t", n, n, alone).ok());
    }
  };
  for (std::size_t n = 0; n <= 9; ++n)
    for (unsigned set = 0; set < 1U << n; ++set) {
      std::vector<std::uint32_t> index;
      for (std::uint32_t i = 0; i < n; ++i)
        if (set >> i & 1) index.push_back(i);
      round_trip(n, index);
    }
  for (const std::size_t n : {1000U, 65537U, 200000U})
    for (const double density : {1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9}) {
      std::vector<std::uint32_t> spread, first, last;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (std::generate_canonical<double, 32>(rng) < density) spread.push_back(i);
      }
      for (std::uint32_t k = 0; k < spread.size(); ++k) {
        first.push_back(k);
        last.push_back(static_cast<std::uint32_t>(n - spread.size()) + k);
      }
      round_trip(n, spread);
      round_trip(n, first);
      round_trip(n, last);
    }
}

TEST(SparsePacked, AutoChoosesTheShortest) {
  std::mt19937 rng(2);
  for (const double density : {0.0, 1e-4, 0.01, 0.2, 0.26, 0.4, 0.9, 1.0})
    for (const ValueForm values : {ValueForm::kF32, ValueForm::k4Bit})
      for (const std::size_t n : {1U, 40U, 20'000U}) {
        std::vector<std::uint32_t> index;
        for (std::uint32_t i = 0; i < n; ++i)
          if (std::generate_canonical<double, 32>(rng) < density) index.push_back(i);
        const std::vector<float> value(index.size(), 1.0F);
        const auto size = [&](IndexForm indices) {
          return packed({values, indices}, n, index, value).size();
        };
        const std::size_t best =
            std::min({size(IndexForm::kU32), size(IndexForm::kDelta), size(IndexForm::kBitmap)});
        // The bytes of gaps are estimated from their number, at most about one bit per gap too high.
        EXPECT_LE(size(IndexForm::kAuto), best + index.size() / 8 + 2) << density << " of " << n;
        EXPECT_GE(size(IndexForm::kAuto), best);
      }
}

TEST(SparsePacked, AutoBeatsPlainByTwoAndAHalfAtOnePercent) {
  constexpr std::size_t kN = 1U << 18;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> grad(kN);
  for (float& v : grad) v = normal(rng);
  for (const char* values : {"bf16", "fp16", "8bit", "4bit", "2bit"}) {
    const auto spec = parse_spec(std::string("topk:ratio=0.01,indices=auto,values=") + values);
    ASSERT_TRUE(spec.ok());
    std::vector<float> residual_out(kN), sent(kN);
    std::vector<std::uint8_t> p(topk_codec.phases[0].bound(spec->settings, kN));
    const Call call{.settings = spec->settings};
    const auto done = topk_codec.reference().encode(call, {grad.data(), nullptr, residual_out.data(), kN}, p);
    ASSERT_TRUE(done.ok());
    p.resize(done->bytes);
    EXPECT_LT(2.5 * static_cast<double>(p.size()), static_cast<double>(bytes(count_of(0.01, kN)))) << values;
    const ByteView view(p);
    ASSERT_TRUE(topk_codec.reference().decode(call, {&view, 1}, {}, sent).ok());
    for (std::size_t i = 0; i < kN; ++i) ASSERT_EQ(sent[i] + residual_out[i], grad[i]) << values << " " << i;
  }
}

TEST(SparsePacked, TruncationsAndBitFlipsGiveAStatus) {
  const std::vector<std::uint32_t> index = {0, 3, 4, 90, 91, 200, 299};
  const std::vector<float> value = {1, -2, 3, -4, 5, -6, 7};
  for (const Form& form : forms()) {
    const std::vector<std::uint8_t> good = packed(form, 300, index, value);
    std::vector<float> out(300), want(300);
    for (std::size_t keep = 0; keep < good.size(); ++keep)
      EXPECT_EQ(check("t", 300, 9, std::vector<std::uint8_t>(good.begin(), good.begin() + keep)).code(),
                Code::kCorrupt);
    std::vector<std::uint8_t> longer = good;
    longer.push_back(0);
    EXPECT_FALSE(check("t", 300, 9, longer).ok());
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::vector<std::uint8_t> p = good;
      p[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      if (!check("t", 300, 9, p).ok()) continue;  // else it is a valid payload of another writer: it decodes
      const ByteView view(p);
      decode_simd({&view, 1}, {}, out);
      decode_ref({&view, 1}, {}, want);
      ASSERT_EQ(std::memcmp(out.data(), want.data(), 4 * out.size()), 0);
    }
  }
}

class PackedCodecs : public testing::TestWithParam<std::string> {};

// Through the codec interface: all impls agree, sent + residual == value bit for bit, plain and packed payloads
// merge.
TEST_P(PackedCodecs, LedgerIsExactAndImplementationsAgree) {
  for (const std::string form : {"values=bf16", "indices=delta", "values=bf16,indices=delta", "values=fp16",
                                 "values=8bit,indices=auto", "values=4bit,indices=bitmap", "indices=auto"}) {
    const auto spec =
        parse_spec(GetParam() + (GetParam() == "threshold" ? ":tau=2," : ":ratio=0.02,") + form);
    ASSERT_TRUE(spec.ok()) << spec.status().what();
    const Codec& codec = *spec->codec;
    for (const std::size_t n : {0U, 1U, 33U, 4097U, 100003U}) {
      std::mt19937 rng(static_cast<unsigned>(n));
      std::normal_distribution<float> normal;
      std::vector<float> grad(n), residual(n);
      for (std::size_t i = 0; i < n; ++i) grad[i] = normal(rng), residual[i] = normal(rng);
      if (n > 2) grad[1] = 3.4e38F;  // beyond the largest finite bf16 value once rounded up
      std::vector<std::vector<std::uint8_t>> payloads;
      std::vector<std::vector<float>> residual_outs, outs;
      for (const Impl& impl : codec.impls) {
        Call call;
        call.settings = spec->settings;
        call.seed = 5;
        const std::size_t room = (codec.scratch(call.settings, n) + 64) / 64 * 64;
        const std::unique_ptr<std::uint8_t, decltype(&std::free)> scratch(
            static_cast<std::uint8_t*>(std::aligned_alloc(64, room)), std::free);
        call.scratch = {scratch.get(), room};
        std::vector<float> residual_out(n);
        std::vector<std::uint8_t> p(codec.phases[0].bound(call.settings, n));
        const auto done = impl.encode(call, {grad.data(), residual.data(), residual_out.data(), n}, p);
        ASSERT_TRUE(done.ok()) << done.status().what();
        EXPECT_TRUE(done->finite);
        p.resize(done->bytes);
        std::vector<float> out(n);
        const ByteView view(p);
        ASSERT_TRUE(impl.decode(call, {&view, 1}, {}, out).ok());
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i] + residual_out[i], grad[i] + residual[i]) << i;
        payloads.push_back(p);
        residual_outs.push_back(residual_out);
        const auto plain = packed({}, n, {}, {});
        const std::vector<ByteView> three = {view, plain, view};
        ASSERT_TRUE(impl.decode(call, three, {.base = grad.data(), .divide = 3}, out).ok());
        outs.push_back(out);
      }
      for (std::size_t k = 1; k < payloads.size(); ++k) {
        EXPECT_EQ(payloads[k], payloads[0]);
        EXPECT_EQ(residual_outs[k], residual_outs[0]);
        EXPECT_EQ(outs[k], outs[0]);
      }
    }
  }
}
// Every codec that has both parameters of the forms.
std::vector<std::string> packing() {
  std::vector<std::string> all;
  for (const Codec* codec : all_codecs()) {
    const auto has = [&](std::string_view name) {
      return std::any_of(codec->params.begin(), codec->params.end(),
                         [&](const ParamSpec& p) { return p.name == name; });
    };
    if (codec->phases.size() == 1 && has("values") && has("indices")) all.emplace_back(codec->name);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, PackedCodecs, testing::ValuesIn(packing()),
                         [](const auto& codec) { return codec.param; });

}  // namespace
}  // namespace tithe::sparse
