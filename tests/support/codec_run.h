// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs codecs: one call with buffers of exact size and scratch filled with garbage, or a round of several workers
// through all phases. send() and round_of() run every impl and compare it with the reference.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "support/draws.h"
#include "support/exact.h"
#include "support/phases.h"
#include "support/scratch.h"
#include "support/values.h"
#include "tithe/seam/catalogue.h"

namespace tithe::harness {

using draws::bell;

inline double squares(const Floats& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * double{x};
  return sum;
}

// Codecs are tested alone: settings under which residuals grow are tested without feedback.
inline Result<Spec> parse_codec(std::string_view text) {
  Result<Spec> spec = parse_spec(text);
  if (spec.ok() || spec.status().what().find("add feedback=none") == std::string::npos) return spec;
  const char* separator = text.find(':') == std::string_view::npos ? ":" : ",";
  return parse_spec(std::string(text) + separator + "feedback=none");
}

inline Spec spec_of(std::string_view text) {
  Result<Spec> spec = parse_codec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status().what();
  if (!spec.ok()) return {};
  prepare(*spec);
  return *spec;
}

// ---- One call

// Whether there is a residual, and the destination of the unsent values.
enum class Keep { kNothing, kResidual, kResidualOut, kApart, kInPlace };
inline constexpr Keep kAllKeeps[] = {Keep::kNothing, Keep::kResidual, Keep::kResidualOut, Keep::kApart,
                                     Keep::kInPlace};
inline const char* name(Keep keep) {
  constexpr const char* kNames[] = {"nothing kept", "a residual and nothing kept", "no residual",
                                    "a residual, kept apart", "a residual, kept in place"};
  return kNames[static_cast<int>(keep)];
}

struct EncodeOutput {
  Payload payload;
  Floats residual_out = {};  // 99 if the call writes no residual
  Floats values = {};        // the decoded values; empty until decode() is called
  bool finite = true;
};

// shift: elements by which every pointer is moved off its natural place.
inline EncodeOutput encode(const Codec& codec, const Impl& impl, Call call, const Floats& grad,
                           const Floats& residual = {}, Keep keep = Keep::kResidualOut,
                           std::size_t shift = 0) {
  const std::size_t n = grad.size(), bound = codec.phases[call.phase].bound(call.settings, n);
  const bool reads = keep == Keep::kResidual || keep == Keep::kApart || keep == Keep::kInPlace;
  EXPECT_TRUE(!reads || residual.size() == n);
  Exact<float> g(grad.data(), n, shift), r(reads ? residual.data() : grad.data(), n, shift);
  Exact<float> apart(Floats(n, 99.0F).data(), n, shift);
  Exact<std::uint8_t> out(Payload(bound, 0x5a).data(), bound, shift);
  const ScratchForTest scratch(codec, call.settings, n);
  call.scratch = scratch;
  const bool writes = keep == Keep::kResidualOut || keep == Keep::kApart;
  float* residual_out = writes ? apart.data() : keep == Keep::kInPlace ? r.data() : nullptr;
  const Result<Encoded> done =
      impl.encode(call, {g.data(), reads ? r.data() : nullptr, residual_out, n}, out.span());
  EXPECT_TRUE(done.ok()) << impl.name << ": " << done.status().what();
  EncodeOutput sent;
  if (!done.ok()) return sent;
  EXPECT_LE(done->bytes, bound);
  for (std::size_t k = done->bytes; k < bound; ++k) EXPECT_EQ(out.data()[k], 0x5a) << "written past its end";
  EXPECT_TRUE(same_bits(grad, g.copy())) << "the gradient was written to";
  sent.finite = done->finite;
  sent.payload = out.copy(done->bytes);
  sent.residual_out = keep == Keep::kInPlace ? r.copy() : apart.copy();
  return sent;
}

enum class Base { kNull, kOther, kInPlace };

// `out` keeps its content; with an in-place base, that content is `onto`.
inline Status decode(const Codec& codec, const Impl& impl, Call call, const std::vector<Payload>& payloads,
                     Base base, const Floats& onto, float divide, Floats& out, std::size_t shift = 0) {
  const std::size_t n = out.size();
  std::vector<Exact<std::uint8_t>> exact;
  std::vector<ByteView> views;
  exact.reserve(payloads.size());
  for (const Payload& p : payloads) views.push_back(exact.emplace_back(p.data(), p.size(), shift).span());
  Exact<float> other(base == Base::kNull ? out.data() : onto.data(), n, shift), into(out.data(), n, shift);
  if (base == Base::kInPlace) std::copy(onto.begin(), onto.end(), into.data());
  Merge merge{nullptr, divide};
  if (base != Base::kNull) merge.base = base == Base::kOther ? other.data() : into.data();
  const ScratchForTest scratch(codec, call.settings, n);
  call.scratch = scratch;
  const Status s = impl.decode(call, views, merge, into.span());
  out = into.copy();
  return s;
}

inline Floats decode_one(const Codec& codec, const Impl& impl, const Call& call, std::size_t n,
                         const Payload& payload) {
  Floats out(n, 99.0F);
  const Status s = decode(codec, impl, call, {payload}, Base::kNull, {}, 1, out);
  EXPECT_TRUE(s.ok()) << impl.name << ": " << s.what();
  return out;
}

struct Sum {
  Code code = Code::kOk;
  bool finite = true;
  Payload acc;
  Floats residual_out;
  friend bool operator==(const Sum& a, const Sum& b) {
    return a.code == b.code && a.finite == b.finite && a.acc == b.acc &&
           same_bits(a.residual_out, b.residual_out);
  }
};

// residual_out has one element per value; combine writes it only if `keeps`.
inline Sum combine(const Impl& impl, const Call& call, const Payload& acc, const Payload& in,
                   const Floats& residual_out, bool keeps, std::size_t shift = 0) {
  const std::size_t n = residual_out.size();
  Exact<std::uint8_t> to(acc.data(), acc.size(), shift), from(in.data(), in.size(), shift);
  Exact<float> l(residual_out.data(), n, shift);
  const Result<Combined> done = impl.combine(call, n, to.span(), from.span(), keeps ? l.data() : nullptr);
  return {done.status().code(), done.ok() && done->finite, to.copy(), l.copy()};
}

// ---- One worker, by every impl

inline void expect_same(const EncodeOutput& got, const EncodeOutput& want, std::string_view impl) {
  EXPECT_EQ(got.finite, want.finite) << impl;
  if (!got.finite || !want.finite) return;
  EXPECT_EQ(first_difference(got.payload, want.payload), "") << impl << ": payload";
  EXPECT_EQ(first_difference(got.residual_out, want.residual_out), "") << impl << ": residual_out";
  EXPECT_EQ(first_difference(got.values, want.values), "") << impl << ": values";
}

// One worker's payload of grad + residual, of a codec of one phase; one of finite values is checked and read.
inline EncodeOutput send_by(const Impl& impl, const Codec& codec, const Call& call, const Floats& grad,
                            const Floats& residual = {}) {
  EncodeOutput sent =
      encode(codec, impl, call, grad, residual, residual.empty() ? Keep::kResidualOut : Keep::kApart);
  if (!sent.finite) return sent;
  const Status valid = impl.check(call, grad.size(), sent.payload);
  EXPECT_TRUE(valid.ok()) << impl.name << ": " << valid.what();
  if (valid.ok()) sent.values = decode_one(codec, impl, call, grad.size(), sent.payload);
  return sent;
}

inline EncodeOutput send(const Codec& codec, const Call& call, const Floats& grad,
                         const Floats& residual = {}) {
  const EncodeOutput want = send_by(codec.reference(), codec, call, grad, residual);
  for (const Impl& impl : codec.impls)
    if (&impl != &codec.reference()) expect_same(send_by(impl, codec, call, grad, residual), want, impl.name);
  return want;
}

inline EncodeOutput send(std::string_view text, const Floats& grad, std::uint32_t round = 1,
                         const Floats& residual = {}) {
  const Spec spec = spec_of(text);
  return send(*spec.codec, {.settings = spec.settings, .seed = 5, .round = round}, grad, residual);
}

// ---- Several workers

struct Round {
  std::vector<std::vector<Payload>> sent;  // by phase and worker
  Payload agreed;                          // of the phase before the last, combined
  Payload sum;                             // of the last phase, combined if possible
  std::vector<Floats> residual_out;        // of each worker's encode
  Floats rounding;                         // rounding errors of combining
  Floats result;
  bool finite = true;
};

inline Call call_of(std::string_view text, unsigned worker = 0) {
  return {.settings = spec_of(text).settings, .seed = 100 + worker, .shared_seed = 9, .round = 4};
}

// All workers through all phases, as in a ring: payloads that combine are combined in the order of workers; of other
// payloads the first one is the phase's result; the last phase's payloads are decoded together.
inline Round round_by(const Impl& impl, std::string_view text, const std::vector<Floats>& x) {
  const Codec& codec = *spec_of(text).codec;
  const std::size_t n = x[0].size();
  Round round;
  round.rounding.resize(n);
  round.result.resize(n);
  const std::uint8_t last = phases::last_phase(codec);
  for (std::uint8_t p = 0; p <= last; ++p) {
    const bool adds = codec.phases[p].combines();
    std::vector<Payload>& all = round.sent.emplace_back();
    Payload total;
    for (unsigned w = 0; w < x.size(); ++w) {
      Call call = call_of(text, w);
      call.phase = p;
      call.context = round.agreed;
      EncodeOutput mine =
          encode(codec, impl, call, x[w], {}, p == last ? Keep::kResidualOut : Keep::kNothing);
      round.finite = round.finite && mine.finite;
      EXPECT_TRUE(impl.check(call, n, mine.payload).ok());
      if (p == last) round.residual_out.push_back(std::move(mine.residual_out));
      if (w == 0) total = mine.payload;
      if (w != 0 && adds) {
        Sum sum = combine(impl, call, total, mine.payload, round.rounding, p == last);
        EXPECT_EQ(sum.code, Code::kOk);
        round.finite = round.finite && sum.finite;
        total = std::move(sum.acc);
        round.rounding = std::move(sum.residual_out);
      }
      all.push_back(std::move(mine.payload));
    }
    (p == last ? round.sum : round.agreed) = std::move(total);
  }
  Call reads;  // without seeds and round: decoding must depend on the payloads only
  reads.settings = spec_of(text).settings;
  reads.phase = last;
  reads.context = round.agreed;
  const bool adds = codec.phases[last].combines();
  const Status s = decode(codec, impl, reads, adds ? std::vector<Payload>(1, round.sum) : round.sent.back(),
                          Base::kNull, {}, 1, round.result);
  EXPECT_TRUE(s.ok()) << s.what();
  return round;
}

inline void expect_same(const Round& got, const Round& want, std::string_view impl) {
  EXPECT_EQ(got.finite, want.finite) << impl;
  EXPECT_TRUE(got.sent == want.sent) << impl << ": payloads";
  EXPECT_EQ(first_difference(got.agreed, want.agreed), "") << impl << ": agreed";
  EXPECT_EQ(first_difference(got.sum, want.sum), "") << impl << ": sum";
  EXPECT_EQ(first_difference(got.rounding, want.rounding), "") << impl << ": rounding";
  EXPECT_EQ(first_difference(got.result, want.result), "") << impl << ": result";
  ASSERT_EQ(got.residual_out.size(), want.residual_out.size());
  for (std::size_t w = 0; w < want.residual_out.size(); ++w)
    EXPECT_EQ(first_difference(got.residual_out[w], want.residual_out[w]), "")
        << impl << ": residual_out, worker " << w;
}

inline Round round_of(std::string_view text, const std::vector<Floats>& x) {
  const Codec& codec = *spec_of(text).codec;
  const Round want = round_by(codec.reference(), text, x);
  EXPECT_TRUE(want.finite);
  for (const Impl& impl : codec.impls)
    if (&impl != &codec.reference()) expect_same(round_by(impl, text, x), want, impl.name);
  return want;
}

}  // namespace tithe::harness
