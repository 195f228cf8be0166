// SPDX-License-Identifier: Apache-2.0
// Targets over the whole list of codecs, for input from several ranks. An input is a head of 8 bytes and a tail:
//   u8 codec | u8 phase | u16 n | u8 options | u8 payloads | u16 unused | tail
//   combine   the tail is a payload that is combined with a valid one: it is rejected and nothing is written, or the
//             result is finite, or reported as not finite; fast path and reference agree
//   context   the tail is the previous phase's payload: if its check accepts it, the round continues
//   list      the tail contains payloads, each after a u16 with its length: decode accepts all or none
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/finite.h"
#include "base/rng.h"
#include "fuzz/targets.h"
#include "support/phases.h"
#include "support/scratch.h"
#include "tithe/seam/catalogue.h"

namespace tithe::fuzz {
namespace {

constexpr std::size_t kHead = 8;
constexpr std::size_t kMaxValues = 5000;
constexpr int kRanks = 3;
constexpr std::size_t kSeedSizes[] = {0, 1, 9, 300, 2100};

using Payload = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

struct CombineCase {
  const Codec& codec;
  std::uint8_t phase;
  std::size_t n;
  std::uint8_t options;
  std::uint8_t payloads;
  ByteView tail;
};

CombineCase case_of(ByteView input) {
  const auto codecs = all_codecs();
  const Codec& codec = *codecs[input[0] % codecs.size()];
  return {codec,
          static_cast<std::uint8_t>(input[1] % codec.phases.size()),
          wire::get<std::uint16_t>(&input[2]) % kMaxValues,
          input[4],
          input[5],
          input.subspan(kHead)};
}

Floats ordinary(std::size_t n, std::uint64_t rank) {
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(static_cast<std::int32_t>(mix64(i + (rank << 20))) >> 8) /
           static_cast<float>(1U << mix64(i) % 24);
  return x;
}

Call call_for(const Codec& codec, std::uint8_t phase, ByteView context) {
  Call call;
  call.settings = defaults(codec);
  call.seed = 11;
  call.shared_seed = 12;
  call.round = 3;
  call.phase = phase;
  call.context = context;
  return call;
}

std::optional<Payload> encode(const Codec& codec, const Impl& impl, Call call, const Floats& x,
                              float* residual_out, bool& finite) {
  const ScratchForTest scratch(codec, call.settings, x.size());
  call.scratch = scratch;
  Payload out(codec.phases[call.phase].bound(call.settings, x.size()));
  const Result<Encoded> done = impl.encode(call, {x.data(), nullptr, residual_out, x.size()}, out);
  if (!done.ok()) return std::nullopt;
  finite = done->finite;
  out.resize(done->bytes);
  return out;
}

Payload encode_some(const Codec& codec, const Call& call, std::size_t n, std::uint64_t rank) {
  bool finite = true;
  const auto made = encode(codec, codec.reference(), call, ordinary(n, rank), nullptr, finite);
  if (!made || !finite) fail(fmt::format("{}: ordinary values are refused", codec.name));
  return *made;
}

// The context of `phase` for kRanks ranks.
Payload context_of(const Codec& codec, std::uint8_t phase, std::size_t n) {
  Payload context;
  for (std::uint8_t p = 0; p < phase; ++p) {
    const Call call = call_for(codec, p, context);
    Payload all = encode_some(codec, call, n, 0);
    for (int rank = 1; rank < kRanks && codec.phases[p].combines(); ++rank) {
      const Payload own = encode_some(codec, call, n, static_cast<std::uint64_t>(rank));
      if (!codec.reference().combine(call, n, all, own, nullptr).ok())
        fail(fmt::format("{}: phase {} does not combine", codec.name, p));
    }
    context = std::move(all);
  }
  return context;
}

// ---- combine

struct CombineOutcome {
  Code code;
  bool finite;
  Payload acc;
  Floats residual_out;
};

void combine_any(ByteView input) {
  if (input.size() < kHead) return;
  const CombineCase a = case_of(input);
  const Phase& phase = a.codec.phases[a.phase];
  if (!phase.combines()) return;
  const Payload context = context_of(a.codec, a.phase, a.n), in(a.tail.begin(), a.tail.end());
  Call call = call_for(a.codec, a.phase, context);
  call.ranks = a.options / 2 % 4;
  const bool keeps = a.options % 2 == 1;
  const Payload acc = encode_some(a.codec, call, a.n, 0);
  const Floats before = ordinary(a.n, 77);
  const auto by = [&](const Impl& impl) {
    CombineOutcome made{Code::kOk, true, acc, before};
    const Result<Combined> done =
        impl.combine(call, a.n, made.acc, in, keeps ? made.residual_out.data() : nullptr);
    made.code = done.status().code();
    made.finite = done.ok() && done->finite;
    return made;
  };
  const CombineOutcome made = by(a.codec.best(this_machine())), plain = by(a.codec.reference());
  const auto broken = [&](const char* what) {
    fail(fmt::format("{} phase {} of {} values: combine {}", a.codec.name, a.phase, a.n, what));
  };
  if (made.code != plain.code || made.finite != plain.finite) broken("decides otherwise by the reference");
  if (made.acc != plain.acc || !same_bits(made.residual_out, plain.residual_out))
    broken("writes otherwise by the reference");
  const bool checked = a.codec.reference().check(call, a.n, in).ok();
  if (made.code != Code::kOk) {
    if (made.code != Code::kCorrupt && made.code != Code::kUnsupported) broken("blames the caller");
    if (made.acc != acc || !same_bits(made.residual_out, before)) broken("refuses and writes");
    return;
  }
  if (!checked) broken("takes what check refuses");
  if (!made.finite) return;
  if (!a.codec.reference().check(call, a.n, made.acc).ok()) broken("makes what check refuses");
  if (!std::all_of(made.residual_out.begin(), made.residual_out.end(), is_finite))
    broken("leaves what is not finite");
}

// ---- context

void context_any(ByteView input) {
  if (input.size() < kHead) return;
  const CombineCase a = case_of(input);
  if (a.phase == 0) return;
  const Payload context(a.tail.begin(), a.tail.end());
  const Settings settings = defaults(a.codec);
  if (!a.codec.reference()
           .check(call_for(a.codec, static_cast<std::uint8_t>(a.phase - 1), {}), a.n, context)
           .ok())
    return;
  const Call call = call_for(a.codec, a.phase, context);
  const auto broken = [&](const Impl& impl, const char* what) {
    fail(fmt::format("{} {} phase {} of {} values: {}", a.codec.name, impl.name, a.phase, a.n, what));
  };
  std::optional<Payload> first;
  Floats first_residual_out, first_out;
  bool first_finite = true;
  for (const Impl& impl : a.codec.impls) {
    Floats residual_out(a.n);
    bool finite = true;
    const auto sent = encode(a.codec, impl, call, ordinary(a.n, 0), residual_out.data(), finite);
    if (!sent) broken(impl, "encode refuses under a context that its check let through");
    if (!first) {
      first = sent;
      first_residual_out = residual_out;
      first_finite = finite;
    }
    if (finite != first_finite) broken(impl, "decides otherwise");
    if (!finite) continue;
    if (*sent != *first || !same_bits(residual_out, first_residual_out)) broken(impl, "writes otherwise");
    if (!impl.check(call, a.n, *sent).ok()) broken(impl, "refuses what it wrote");
    if (!std::all_of(residual_out.begin(), residual_out.end(), is_finite))
      broken(impl, "leaves what is not finite");
    Floats out(a.n);
    Call reads = call;
    const ScratchForTest scratch(a.codec, settings, a.n);
    reads.scratch = scratch;
    const std::vector<ByteView> views(2, *sent);
    if (!impl.decode(reads, views, {}, out).ok()) broken(impl, "cannot decode what it wrote");
    for (float& v : out)
      if (!is_finite(v)) v = std::numeric_limits<float>::quiet_NaN();
    if (first_out.empty()) first_out = out;
    if (!same_bits(out, first_out)) broken(impl, "decodes otherwise");
  }
}

// ---- list

void list_any(ByteView input) {
  if (input.size() < kHead) return;
  const CombineCase a = case_of(input);
  const std::uint8_t last = phases::last_phase(a.codec);
  const Payload context = context_of(a.codec, last, a.n);
  Call call = call_for(a.codec, last, context);
  std::vector<Payload> payloads;
  ByteView rest = a.tail;
  while (rest.size() >= 2 && payloads.size() < a.payloads % 8U) {
    const std::size_t bytes = std::min<std::size_t>(wire::get<std::uint16_t>(rest.data()), rest.size() - 2);
    payloads.emplace_back(rest.begin() + 2, rest.begin() + 2 + static_cast<std::ptrdiff_t>(bytes));
    rest = rest.subspan(2 + bytes);
  }
  const std::vector<ByteView> views(payloads.begin(), payloads.end());
  bool checked = true;
  for (const ByteView p : views) checked = checked && a.codec.reference().check(call, a.n, p).ok();
  const Floats onto = ordinary(a.n, 5);
  Floats first;
  std::optional<bool> taken;
  for (const Impl& impl : a.codec.impls) {
    const auto broken = [&](const char* what) {
      fail(fmt::format("{} {}: {} payloads for {} values: {}", a.codec.name, impl.name, views.size(), a.n,
                       what));
    };
    const ScratchForTest scratch(a.codec, call.settings, a.n);
    call.scratch = scratch;
    Floats out = onto;
    Merge how{.base = nullptr, .divide = static_cast<float>(1 + a.options / 4 % 3)};
    if (a.options % 3 == 1) how.base = onto.data();
    if (a.options % 3 == 2) how.base = out.data();
    const Status s = impl.decode(call, views, how, out);
    if (s.ok() && !checked) broken("takes what check refuses");
    if (!s.ok() && s.code() != Code::kCorrupt) broken("blames the caller");
    if (!s.ok() && !same_bits(out, onto)) broken("refuses and writes");
    if (taken.value_or(s.ok()) != s.ok()) broken("decides otherwise");
    taken = s.ok();
    for (float& v : out)
      if (v != v) v = std::numeric_limits<float>::quiet_NaN();
    if (first.empty()) first = out;
    if (!same_bits(out, first)) broken("another result");
  }
}

// ---- Seeds

Input with_head(std::size_t codec, std::uint8_t phase, std::size_t n, std::uint8_t options,
                std::uint8_t payloads, ByteView tail) {
  Input input(8 + tail.size());
  const std::uint8_t head[] = {static_cast<std::uint8_t>(codec),  phase,   static_cast<std::uint8_t>(n),
                               static_cast<std::uint8_t>(n >> 8), options, payloads};
  std::copy(std::begin(head), std::end(head), input.begin());
  std::copy(tail.begin(), tail.end(), input.begin() + 8);
  return input;
}

// make(codec's number, codec, n) adds to the seeds.
template <typename Make>
std::vector<Input> seeds_of(Make make) {
  std::vector<Input> seeds;
  for (std::size_t k = 0; k < all_codecs().size(); ++k)
    for (const std::size_t n : kSeedSizes) make(seeds, k, *all_codecs()[k], n);
  return seeds;
}

}  // namespace

void add_combine_targets(std::vector<Target>& targets) {
  targets.push_back({"combine", combine_any, seeds_of([](auto& seeds, auto k, const Codec& codec, auto n) {
                       for (std::uint8_t p = 0; p < codec.phases.size(); ++p) {
                         if (!codec.phases[p].combines()) continue;
                         const Payload context = context_of(codec, p, n);
                         const Payload in = encode_some(codec, call_for(codec, p, context), n, 1);
                         for (const int options : {0, 1, 5})
                           seeds.push_back(with_head(k, p, n, static_cast<std::uint8_t>(options), 0, in));
                       }
                     })});
  targets.push_back({"context", context_any, seeds_of([](auto& seeds, auto k, const Codec& codec, auto n) {
                       for (std::uint8_t p = 1; p < codec.phases.size(); ++p)
                         seeds.push_back(with_head(k, p, n, 0, 0, context_of(codec, p, n)));
                     })});
  targets.push_back({"list", list_any, seeds_of([](auto& seeds, auto k, const Codec& codec, auto n) {
                       const std::uint8_t last = phases::last_phase(codec);
                       const Payload context = context_of(codec, last, n);
                       Payload tail;
                       for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
                         const Payload own = encode_some(codec, call_for(codec, last, context), n, rank);
                         tail.push_back(static_cast<std::uint8_t>(own.size()));
                         tail.push_back(static_cast<std::uint8_t>(own.size() >> 8));
                         tail.insert(tail.end(), own.begin(), own.end());
                       }
                       for (const int options : {0, 1, 6})
                         seeds.push_back(
                             with_head(k, last, n, static_cast<std::uint8_t>(options), kRanks, tail));
                     })});
}

}  // namespace tithe::fuzz
