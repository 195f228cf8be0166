// SPDX-License-Identifier: Apache-2.0
// scalecom: one rank names the places of its k largest values and all ranks send theirs there (Chen et al.,
// "ScaleCom", NeurIPS 2020). The leader changes every round. Since the places are shared, values add up on the way: a
// ring carries k of them, however many ranks there are.
//
// The published form also smooths the residual; feedback=decay comes near to that.
//
// Layout   phase 0 (leader): u32 count | u32 index[count], increasing, count <= k = max(1, ceil(ratio n))
//          phase 1 (sum):    f32 value[count]
#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "codec/leave.h"
#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/sparse.h"

namespace tithe {
namespace scalecom {
namespace {

enum Param : std::size_t { kRatio };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"}};

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t bound_places(const Settings& s, std::size_t n) { return 4 + 4 * most(s, n); }
std::size_t bound_values(const Settings& s, std::size_t n) { return 4 * most(s, n); }

// The choice is topk's.
Settings choice(const Settings& s) {
  Settings settings = defaults(topk_codec);
  settings.value[0] = s[kRatio];
  return settings;
}
std::size_t choice_scratch(const Settings& s, std::size_t n) {
  return (topk_codec.scratch(choice(s), n) + 63) / 64 * 64;
}
std::size_t scratch(const Settings& s, std::size_t n) {
  return choice_scratch(s, n) + sparse::bytes(most(s, n));
}

std::size_t count_of(ByteView places) { return wire::get<std::uint32_t>(places.data()); }
std::uint32_t place(ByteView places, std::size_t j) {
  return wire::get<std::uint32_t>(places.data() + 4 + 4 * j);
}

Status check_places(const Settings& s, std::size_t n, ByteView payload) {
  const auto corrupt = [](const char* why) {
    return Status(Code::kCorrupt, std::string("scalecom: ") + why);
  };
  if (payload.size() < 4) return corrupt("no count of places");
  const std::size_t count = count_of(payload);
  if (count > most(s, n)) return corrupt("more places than the ratio allows");
  if (payload.size() != 4 + 4 * count) return corrupt("another length than its count says");
  std::uint64_t least = 0;
  for (std::size_t j = 0; j < count; ++j) {
    if (place(payload, j) < least || place(payload, j) >= n) return corrupt("places do not increase below n");
    least = std::uint64_t{place(payload, j)} + 1;
  }
  return {};
}

// How many values there must be is in the places, which decode knows.
Status check_values(const Settings& s, std::size_t n, ByteView payload) {
  if (payload.size() % 4 == 0 && payload.size() <= bound_values(s, n)) return {};
  return {Code::kCorrupt, "scalecom: " + std::to_string(payload.size()) + " bytes are no list of values"};
}

Result<Encoded> name_places(const Impl& topk, const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_places(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("scalecom", call.scratch.size(), scratch(call.settings, in.n)));
  const std::size_t own = choice_scratch(call.settings, in.n);
  Call chooses = call;
  chooses.settings = choice(call.settings);
  chooses.scratch = call.scratch.first(own);
  const Bytes pairs = call.scratch.subspan(own);
  const Result<Encoded> done = topk.encode(chooses, {in.grad, in.residual, nullptr, in.n}, pairs);
  if (!done.ok()) return done;
  const std::size_t bytes = 4 + 4 * count_of(pairs);  // a plain payload begins with its places
  std::memcpy(out.data(), pairs.data(), bytes);
  return Encoded{.bytes = bytes, .finite = done->finite};
}

Result<Encoded> send_values(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  const std::size_t count = count_of(call.context);
  for (std::size_t j = 0; j < count; ++j)  // 0 +: sums of -0 and +0 have one sign everywhere
    wire::put(&out[4 * j], 0.0F + in.take(place(call.context, j)));
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < in.n; ++i) {
    largest = std::max(largest, sparse::magnitude(in.take(i)));
    in.leave(i, 0.0F);
  }
  if (in.left)
    for (std::size_t j = 0; j < count; ++j) in.left[place(call.context, j)] = 0.0F;
  return Encoded{.bytes = 4 * count, .finite = largest < sparse::kFirstNonFinite};
}

Result<Encoded> send_values_fast(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  const std::size_t count = count_of(call.context);
  std::size_t j = 0;
  const bool finite = codec::leave_and_pick(in, [&](std::size_t end) {
    for (; j < count; ++j) {
      const std::size_t i = place(call.context, j);
      if (i >= end) break;
      wire::put(&out[4 * j], 0.0F + codec::left_value(in, i));
      if (in.left) in.left[i] = 0.0F;
    }
  });
  return Encoded{.bytes = 4 * count, .finite = finite};
}

template <bool kFast>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("scalecom", in.n));
  if (call.phase != 0) return kFast ? send_values_fast(call, in, out) : send_values(call, in, out);
  return name_places(kFast ? topk_codec.impls.front() : topk_codec.reference(), call, in, out);
}

// Part after part of the output, each of which stays in the nearest cache until all payloads have been added.
template <bool kFast>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(scalecom_codec, call, payloads, out.size()));
  const std::size_t count = count_of(call.context);
  for (const ByteView p : payloads) TITHE_TRY(codec::check_size("scalecom", p.size(), 4 * count));
  constexpr std::size_t kMerged = 8192;
  const std::size_t part = kFast ? kMerged : std::max<std::size_t>(1, out.size());
  std::size_t j = 0;
  for (std::size_t start = 0; start < out.size(); start += part) {
    const std::span<float> now = out.subspan(start, std::min(part, out.size() - start));
    if (!merge.base)
      std::fill(now.begin(), now.end(), 0.0F);
    else if (merge.base != out.data())
      std::copy_n(merge.base + start, now.size(), now.begin());
    for (; j < count; ++j) {
      const std::size_t i = place(call.context, j);
      if (i >= start + now.size()) break;
      for (const ByteView p : payloads) out[i] += wire::get<float>(p.data() + 4 * j);
    }
    if (merge.divide != 1.0F)
      for (float& v : now) v /= merge.divide;
  }
  return {};
}

Status add(const Settings&, std::size_t, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("scalecom", in.size(), acc.size()));
  for (std::size_t at = 0; at < acc.size(); at += 4)
    wire::put(&acc[at], wire::get<float>(&acc[at]) + wire::get<float>(&in[at]));
  return {};
}

constexpr Law kLeads[] = {Law::kLeader};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {
    {.name = "places", .laws = kLeads, .bound = bound_places, .check = check_places},
    {.name = "values", .laws = kAdds, .bound = bound_values, .check = check_values, .combine = add}};
constexpr Impl kImpls[] = {
    {.name = "simd", .usable = codec::with_simd, .encode = encode<true>, .decode = decode<true>},
    {.name = "ref", .usable = codec::always, .encode = encode<false>, .decode = decode<false>}};

}  // namespace
}  // namespace scalecom

const Codec scalecom_codec = {.id = CodecId::scalecom,
                              .name = "scalecom",
                              .doc = "the values at places that one rank names (Chen et al. 2020)",
                              .params = scalecom::kParams,
                              .phases = scalecom::kPhases,
                              .traits = {.exact_ledger = true},
                              .scratch = scalecom::scratch,
                              .impls = scalecom::kImpls};

}  // namespace tithe
