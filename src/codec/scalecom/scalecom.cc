// SPDX-License-Identifier: Apache-2.0
// scalecom: one rank names the places of its k largest values and all ranks send theirs there (Chen et al.,
// "ScaleCom", NeurIPS 2020). The leader changes every round. Since the places are shared, values add up on the way: a
// ring carries k of them, however many ranks there are.
//
// The published form also smooths the residual; feedback=decay comes near to that.
//
// Layout   phase 0 (leader): count <= k = max(1, ceil(ratio n)) places (codec/sparse.h), and how values will be written
//          phase 1 (sum):    value array (codec/sparse_values.h)
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/shared_places.h"
#include "codec/sparse.h"

namespace tithe {
namespace scalecom {
namespace {

using sparse::PlaceReader;
using sparse::ValueForm;

enum Param : std::size_t { kRatio, kValues, kIndices };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"},
                                 sparse::kFixedValuesParam,
                                 sparse::kIndicesParam};

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
sparse::Form form(const Settings& s) { return sparse::form_of(s, kValues); }
std::size_t bound_places(const Settings& s, std::size_t n) {
  return sparse::places_bound(form(s), most(s, n), n);
}
std::size_t bound_values(const Settings& s, std::size_t n) {
  return sparse::value_bytes(form(s).values, most(s, n));
}

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

Status check_places(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(sparse::check_places("scalecom", n, most(s, n), payload));
  if (PlaceReader(payload).form().values == form(s).values) return {};
  return {Code::kCorrupt, "scalecom: values in another form than is set"};
}

// How many values there must be is in the places, which decode and combine know: here, that there is a number of them
// that takes so many bytes, and of several the largest.
Status check_values(const Settings& s, std::size_t n, ByteView payload) {
  const ValueForm values = form(s).values;
  std::size_t count = 0;
  for (std::size_t step = std::bit_floor(most(s, n)); step > 0; step /= 2)
    if (count + step <= most(s, n) && sparse::value_bytes(values, count + step) <= payload.size())
      count += step;
  if (sparse::value_bytes(values, count) != payload.size())
    return {Code::kCorrupt, "scalecom: " + std::to_string(payload.size()) + " bytes are no list of values"};
  if (!sparse::values_hold(values, payload, count))
    return {Code::kCorrupt, "scalecom: a code that no writer writes"};
  return {};
}

// The same, knowing the places.
Status check_array(ByteView places, ByteView payload) {
  const PlaceReader reader(places);
  const ValueForm values = reader.form().values;
  TITHE_TRY(codec::check_size("scalecom", payload.size(), sparse::value_bytes(values, reader.count())));
  if (!sparse::values_hold(values, payload, reader.count()))
    return {Code::kCorrupt, "scalecom: a code that no writer writes"};
  return {};
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
  const std::size_t count = sparse::Pairs(pairs).count();
  const auto* index = reinterpret_cast<const std::uint32_t*>(pairs.data() + sparse::kHead);
  return Encoded{.bytes = sparse::write_places(form(call.settings), in.n, {index, count}, out),
                 .finite = done->finite};
}

Result<Encoded> send_values(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  std::vector<float> values(in.n);
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < in.n; ++i) {
    values[i] = in.take(i);
    largest = std::max(largest, sparse::magnitude(values[i]));
    in.leave(i, 0.0F);
  }
  PlaceReader places(call.context);
  sparse::ArrayWriter writer(places.form().values, in, out.data());
  for (std::uint32_t place = 0; places.read({&place, 1}) > 0;) writer.send(place, values[place]);
  return Encoded{.bytes = writer.finish(), .finite = largest < sparse::kFirstNonFinite};
}

Result<Encoded> send_values_fast(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  const PlaceReader places(call.context);
  sparse::ArrayWriter writer(places.form().values, in, out.data());
  const bool finite = sparse::leave_and_send(in, places, writer);
  return Encoded{.bytes = writer.finish(), .finite = finite};
}

template <bool kFast>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("scalecom", in.n));
  if (call.phase != 0) return kFast ? send_values_fast(call, in, out) : send_values(call, in, out);
  return name_places(kFast ? topk_codec.impls.front() : topk_codec.reference(), call, in, out);
}

Status check_arrays(const Call& call, std::span<const ByteView> payloads, std::size_t n) {
  TITHE_TRY(codec::check_all(scalecom_codec, call, payloads, n));
  for (const ByteView p : payloads) TITHE_TRY(check_array(call.context, p));
  return {};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(check_arrays(call, payloads, out.size()));
  if (!merge.base)
    std::fill(out.begin(), out.end(), 0.0F);
  else if (merge.base != out.data())
    std::copy_n(merge.base, out.size(), out.begin());
  for (const ByteView p : payloads) {
    PlaceReader places(call.context);
    std::uint32_t place = 0;
    for (std::size_t j = 0; places.read({&place, 1}) > 0; ++j)
      out[place] += sparse::value_at(places.form().values, p.data(), j);
  }
  if (merge.divide != 1.0F)
    for (float& v : out) v /= merge.divide;
  return {};
}

Status decode_fast(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                   std::span<float> out) {
  TITHE_TRY(check_arrays(call, payloads, out.size()));
  const PlaceReader places(call.context);
  std::vector<sparse::Placed<PlaceReader>> all;
  for (const ByteView p : payloads) all.push_back({places.form().values, p.data(), sparse::Listed(places)});
  sparse::merge_arrays(std::span(all), merge, out);
  return {};
}

Result<Combined> add(const Call& call, std::size_t, Bytes acc, ByteView in, float* left) {
  TITHE_TRY(check_array(call.context, acc));
  TITHE_TRY(check_array(call.context, in));
  const PlaceReader places(call.context);
  return Combined{
      sparse::add_arrays(places.form().values, places.count(), acc.data(), in.data(), left, places)};
}

constexpr Law kLeads[] = {Law::kLeader};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {
    {.name = "places", .laws = kLeads, .bound = bound_places, .check = check_places},
    {.name = "values", .laws = kAdds, .bound = bound_values, .check = check_values, .combine = add}};
constexpr Impl kImpls[] = {
    {.name = "simd", .usable = codec::with_simd, .encode = encode<true>, .decode = decode_fast},
    {.name = "ref", .usable = codec::always, .encode = encode<false>, .decode = decode}};

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
