// SPDX-License-Identifier: Apache-2.0
#pragma once
// One encode or one decode of a codec's last phase, with all its buffers exact and its scratch full of rubbish: what
// the suites of codecs run on.
#include <gtest/gtest.h>

#include <algorithm>

#include "codec_case.h"
#include "phases.h"

namespace tithe::conformance {

using Payload = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

// Of Traits::adds_transformed.
inline constexpr double kTransformRounding = 0x1p-20;

inline double largest(const Floats& v) {
  double most = 0;
  for (const float x : v) most = std::max(most, std::abs(double{x}));
  return most;
}

enum class Keep { kNothing, kApart, kInPlace };  // what becomes of what is not sent
inline constexpr Keep kKeeps[] = {Keep::kNothing, Keep::kApart, Keep::kInPlace};

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
  void agree(int workers) { agree(workers, values(Data::kHeavy, n, 1)); }
  // Of workers with these values; false where they are reported.
  bool agree(int workers, const Floats& x) {
    if (codec.phases.size() == 1) return true;
    bool finite = true;
    context_ = with_scratch([&](const Call& c) {
      return phases::context_of(workers, codec, reference, c, {x.data(), nullptr, nullptr, n}, &finite);
    });
    call.context = context_;
    return finite;
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

}  // namespace tithe::conformance
