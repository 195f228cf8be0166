// SPDX-License-Identifier: Apache-2.0
// One target per codec. An input is a head of 8 bytes and a tail:
//   u16 n | u8 kind | u8 payloads | u8 base | u8 divide | u16 unused | tail
// kind 0: the tail is a payload (the same one `payloads` times); decode must return values or kCorrupt. kind 1: the
// tail is gradient and residual bits; encode must satisfy its contract for any floats.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/finite.h"
#include "base/rng.h"
#include "fuzz/targets.h"
#include "support/phases.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"

namespace tithe::fuzz {
namespace {

constexpr std::size_t kHead = 8;
constexpr std::size_t kMaxValues = 5000;  // crosses blocks of 2048; larger n only slow the search down
constexpr float kUntouched = -12345.5F;
constexpr float kMayBeReported = 0x1p110F;  // for codecs whose ledger is not exact near the largest float

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class Scratch {
 public:
  explicit Scratch(std::size_t bytes)
      : bytes_(bytes),
        p_(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free) {}
  Bytes all() const { return {p_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, void (*)(void*)> p_;
};

Call call_for(const Codec& codec) {
  Call call;
  call.settings = defaults(codec);
  call.seed = 11;
  call.shared_seed = 12;
  call.round = 3;
  call.phase = phases::last_phase(codec);
  return call;
}

// Tests codecs of several phases in the last phase; the context depends on n alone.
std::vector<std::uint8_t> context_for(const Codec& codec, const Call& call, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(mix64(i + 99) % 2001) - 1000;
  return phases::context_alone(codec, codec.reference(), call, {x.data(), nullptr, nullptr, n});
}

// A vector of `values` floats from the bytes, padded with zeros.
std::vector<float> floats(ByteView bytes, std::size_t values) {
  std::vector<float> v(values);
  for (std::size_t i = 0; i < values && 4 * i + 4 <= bytes.size(); ++i)
    v[i] = wire::get<float>(&bytes[4 * i]);
  return v;
}

void decode_any(const Codec& codec, ByteView head, ByteView tail, std::size_t n) {
  const std::vector<std::uint8_t> payload(tail.begin(),
                                          tail.end());  // exact size: a sanitizer detects every overrun
  const std::size_t count = 1 + head[3] % 5;
  const std::vector<ByteView> payloads(count, payload);
  Call call = call_for(codec);
  const Scratch scratch(codec.scratch(call.settings, n));
  call.scratch = scratch.all();
  const std::vector<std::uint8_t> context = context_for(codec, call, n);
  call.context = context;
  const Status checked = codec.reference().check(call, n, payload);
  if (!checked.ok() && checked.code() != Code::kCorrupt)
    fail(fmt::format("{}: check says {}", codec.name, name(checked.code())));

  std::vector<float> base(n);
  for (std::size_t i = 0; i < n; ++i) base[i] = static_cast<float>(mix64(i) % 1000) - 500;
  const float divide = static_cast<float>(1 + head[5] % 4);
  std::vector<float> first;
  for (const Impl& impl : codec.impls) {
    if (!impl.usable(this_machine())) continue;
    std::vector<float> out(n, kUntouched);
    Merge merge{.base = nullptr, .divide = divide};
    if (head[4] % 3 == 1) merge.base = base.data();
    if (head[4] % 3 == 2) {
      out = base;
      merge.base = out.data();
    }
    const std::vector<float> before = out;
    const Status s = impl.decode(call, payloads, merge, out);
    const bool agree = codec.phases.size() == 1 ? s.ok() == checked.ok() : checked.ok() || !s.ok();
    if (!agree) fail(fmt::format("{} {}: check and decode disagree: {}", codec.name, impl.name, s.what()));
    if (!s.ok() && !same_bits(out, before))
      fail(fmt::format("{} {}: a refused payload wrote values", codec.name, impl.name));
    // NaNs may differ in their payload bits between instruction sets; finite values may not.
    for (float& v : out)
      if (v != v) v = std::numeric_limits<float>::quiet_NaN();
    if (first.empty()) first = out;
    if (s.ok() && !same_bits(out, first))
      fail(fmt::format("{} {}: another result than {}", codec.name, impl.name, codec.impls[0].name));
  }
}

void encode_any(const Codec& codec, ByteView head, ByteView tail, std::size_t n) {
  const std::vector<float> grad = floats(tail, n);
  const std::vector<float> residual = floats(tail.subspan(std::min(tail.size(), 4 * n)), n);
  const bool feedback = head[4] % 3 != 0;
  const bool in_place = head[4] % 3 == 2;
  bool finite = true;
  float largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float v = feedback ? grad[i] + residual[i] : grad[i];
    finite = finite && is_finite(v);
    largest = std::max(largest, std::fabs(v));
  }
  std::optional<bool> reported;
  Call call = call_for(codec);
  const Scratch scratch(codec.scratch(call.settings, n));
  call.scratch = scratch.all();
  const std::vector<std::uint8_t> context = context_for(codec, call, n);
  call.context = context;
  std::vector<std::uint8_t> first_payload;
  std::vector<float> first_residual_out;
  for (const Impl& impl : codec.impls) {
    if (!impl.usable(this_machine())) continue;
    std::vector<float> left = in_place ? residual : std::vector<float>(n, kUntouched);
    EncodeInput input{grad.data(), nullptr, nullptr, n};
    if (feedback) {
      input.residual = in_place ? left.data() : residual.data();
      input.residual_out = left.data();
    }
    std::vector<std::uint8_t> payload(codec.phases.back().bound(call.settings, n));
    Result<Encoded> e = impl.encode(call, input, payload);
    if (!e.ok()) fail(fmt::format("{} {}: encode refuses: {}", codec.name, impl.name, e.status().what()));
    if (e->finite != finite && !(finite && largest >= kMayBeReported))
      fail(fmt::format("{} {}: finite is {}", codec.name, impl.name, e->finite));
    if (reported.value_or(!e->finite) == e->finite)
      fail(fmt::format("{} {}: finite is {}, by another not", codec.name, impl.name, e->finite));
    reported = !e->finite;
    if (!e->finite) continue;  // the payload must not be used
    if (feedback && !std::all_of(left.begin(), left.end(), is_finite))
      fail(fmt::format("{} {}: leaves what is not finite", codec.name, impl.name));
    payload.resize(e->bytes);
    if (const Status s = impl.check(call, n, payload); !s.ok())
      fail(fmt::format("{} {}: refuses what it wrote: {}", codec.name, impl.name, s.what()));
    if (&impl == &codec.impls[0] || first_payload.empty()) {
      first_payload = payload;
      first_residual_out = left;
    }
    if (payload != first_payload) fail(fmt::format("{} {}: another payload", codec.name, impl.name));
    if (feedback && !same_bits(left, first_residual_out))
      fail(fmt::format("{} {}: another residual", codec.name, impl.name));
    std::vector<float> sent(n);
    const ByteView view = payload;
    if (const Status s = impl.decode(call, {&view, 1}, {}, sent); !s.ok())
      fail(fmt::format("{} {}: cannot decode what it wrote: {}", codec.name, impl.name, s.what()));
    if (!std::all_of(sent.begin(), sent.end(), is_finite))
      fail(fmt::format("{} {}: sends what is not finite", codec.name, impl.name));
    if (!feedback || !codec.traits.exact_ledger) continue;
    for (std::size_t i = 0; i < n; ++i)
      if (static_cast<double>(grad[i] + residual[i]) != static_cast<double>(sent[i]) + left[i])
        fail(fmt::format("{} {}: value {} is lost", codec.name, impl.name, i));
  }
}

void run_codec(const Codec& codec, ByteView input) {
  if (input.size() < kHead) return;
  const ByteView head = input.first(kHead);
  const ByteView tail = input.subspan(kHead);
  const std::size_t n = wire::get<std::uint16_t>(head.data()) % kMaxValues;
  if (head[2] % 2 == 0)
    decode_any(codec, head, tail, n);
  else
    encode_any(codec, head, tail, n);
}

Input with_head(std::size_t n, std::uint8_t kind, std::uint8_t payloads, std::uint8_t base, ByteView tail) {
  Input input = {
      static_cast<std::uint8_t>(n), static_cast<std::uint8_t>(n >> 8), kind, payloads, base, payloads, 0, 0};
  for (const std::uint8_t byte : tail) input.push_back(byte);
  return input;
}

// The defaults; and where values and indices can be written in several ways, each of those, as a reader takes them all.
std::vector<Settings> ways_to_write(const Codec& codec) {
  std::vector<Settings> all = {defaults(codec)};
  for (std::size_t p = 0; p < codec.params.size(); ++p) {
    const ParamSpec& param = codec.params[p];
    if (param.choices.empty() || (param.name != "values" && param.name != "indices")) continue;
    for (std::size_t choice = 1; choice < param.choices.size(); ++choice) {
      all.push_back(defaults(codec));
      all.back().value[p] = static_cast<double>(choice);
    }
  }
  return all;
}

std::vector<Input> seeds_of(const Codec& codec) {
  std::vector<Input> seeds;
  for (const std::size_t n : {0, 1, 9, 300, 4500}) {
    std::vector<std::uint8_t> raw(8 * n);  // gradient and residual
    std::vector<float> grad(n);
    for (std::size_t i = 0; i < 2 * n; ++i) {
      const float v = static_cast<float>(static_cast<std::int32_t>(mix64(i)) >> 8) /
                      static_cast<float>(1U << mix64(i + n) % 24);
      wire::put(&raw[4 * i], v);
      if (i < n) grad[i] = v;
    }
    const std::vector<Settings> ways = ways_to_write(codec);
    for (const Settings& settings : ways) {
      Call call = call_for(codec);
      call.settings = settings;
      const Scratch scratch(codec.scratch(call.settings, n));
      call.scratch = scratch.all();
      const std::vector<std::uint8_t> context = context_for(codec, call, n);
      call.context = context;
      std::vector<std::uint8_t> payload(codec.phases.back().bound(call.settings, n));
      Result<Encoded> e = codec.reference().encode(call, {grad.data(), nullptr, nullptr, n}, payload);
      if (!e.ok()) fail(e.status().what());
      payload.resize(e->bytes);
      for (std::uint8_t base = 0; base < (settings == ways.front() ? 3 : 1); ++base)
        seeds.push_back(with_head(n, 0, base, base, payload));
    }
    for (std::uint8_t base = 0; base < 3; ++base) seeds.push_back(with_head(n, 1, base, base, raw));
  }
  return seeds;
}

}  // namespace

void add_codec_targets(std::vector<Target>& targets) {
  for (const Codec* codec : all_codecs()) {
    targets.push_back(
        {std::string(codec->name), [codec](ByteView input) { run_codec(*codec, input); }, seeds_of(*codec)});
  }
}

}  // namespace tithe::fuzz
