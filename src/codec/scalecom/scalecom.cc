// SPDX-License-Identifier: Apache-2.0
#include "codec/scalecom/scalecom.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/common/payload.h"
#include "codec/sparse/largest.h"
#include "codec/sparse/shared_indices.h"
#include "codec/sparse/sparse.h"

namespace tithe {
namespace scalecom {
namespace {

using sparse::IndexReader;
using sparse::ValueForm;

enum Param : std::size_t { kRatio, kValues, kIndices };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"},
                                 sparse::kFixedValuesParam,
                                 sparse::kIndicesParam};

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
sparse::Form form(const Settings& s) { return sparse::form_of(s, kValues); }
std::size_t bound_indices(const Settings& s, std::size_t n) {
  return sparse::indices_bound(form(s), most(s, n), n);
}
std::size_t bound_values(const Settings& s, std::size_t n) {
  return sparse::value_bytes(form(s).values, most(s, n));
}

// The choice is topk's.
std::size_t choice_scratch(const Settings& s, std::size_t n) {
  return (largest::scratch(s[kRatio], n) + 63) / 64 * 64;
}
std::size_t scratch(const Settings& s, std::size_t n) {
  return choice_scratch(s, n) + sparse::bytes(most(s, n));
}

Status check_indices(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(sparse::check_indices("scalecom", n, most(call.settings, n), payload));
  if (IndexReader(payload).form().values == form(call.settings).values) return {};
  return {Code::kCorrupt, "scalecom: values in another form than is set"};
}

// The number of values follows from the indices, which only decode and combine know. This checks that some count of
// values takes payload.size() bytes; the largest such count, if there are several.
Status check_values(const Call& call, std::size_t n, ByteView payload) {
  const ValueForm values = form(call.settings).values;
  std::size_t count = 0;
  for (std::size_t step = std::bit_floor(most(call.settings, n)); step > 0; step /= 2)
    if (count + step <= most(call.settings, n) && sparse::value_bytes(values, count + step) <= payload.size())
      count += step;
  if (sparse::value_bytes(values, count) != payload.size())
    return {Code::kCorrupt, "scalecom: " + std::to_string(payload.size()) + " bytes are no list of values"};
  if (!sparse::values_hold(values, payload, count))
    return {Code::kCorrupt, "scalecom: a code that no writer writes"};
  return {};
}

// check_values for the count that the indices give.
Status check_array(ByteView indices, ByteView payload) {
  const IndexReader reader(indices);
  const ValueForm values = reader.form().values;
  TITHE_TRY(codec::check_size("scalecom", payload.size(), sparse::value_bytes(values, reader.count())));
  if (!sparse::values_hold(values, payload, reader.count()))
    return {Code::kCorrupt, "scalecom: a code that no writer writes"};
  return {};
}

Result<Encoded> choose_indices(largest::Choose choose, const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_indices(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("scalecom", call.scratch.size(), scratch(call.settings, in.n)));
  const std::size_t own = choice_scratch(call.settings, in.n);
  const Bytes pairs = call.scratch.subspan(own);
  const Result<Encoded> done =
      choose(call, call.settings[kRatio], {in.grad, in.residual, nullptr, in.n}, pairs);
  if (!done.ok()) return done;
  const std::size_t count = sparse::Pairs(pairs).count();
  const auto* index = reinterpret_cast<const std::uint32_t*>(pairs.data() + sparse::kHead);
  return Encoded{.bytes = sparse::write_indices(form(call.settings), in.n, {index, count}, out),
                 .finite = done->finite};
}

Result<Encoded> send_values_ref(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  std::vector<float> values(in.n);
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < in.n; ++i) {
    values[i] = in.take(i);
    largest = std::max(largest, sparse::magnitude(values[i]));
    in.leave(i, 0.0F);
  }
  IndexReader indices(call.context);
  sparse::ArrayWriter writer(indices.form().values, in, out.data());
  for (std::uint32_t index = 0; indices.read({&index, 1}) > 0;) writer.send(index, values[index]);
  return Encoded{.bytes = writer.finish(), .finite = largest < sparse::kFirstNonFinite};
}

Result<Encoded> send_values_simd(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("scalecom", out.size(), bound_values(call.settings, in.n)));
  const IndexReader indices(call.context);
  sparse::ArrayWriter writer(indices.form().values, in, out.data());
  const bool finite = sparse::leave_and_send(in, indices, writer);
  return Encoded{.bytes = writer.finish(), .finite = finite};
}

template <largest::Choose kChoose, Result<Encoded> (*kSendValues)(const Call&, const Carry&, Bytes)>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("scalecom", in.n));
  return call.phase == 0 ? choose_indices(kChoose, call, in, out) : kSendValues(call, in, out);
}

constexpr codec::Check check = codec::by_phase<check_indices, check_values>;

Status check_arrays(const Call& call, std::span<const ByteView> payloads, std::size_t n) {
  TITHE_TRY(codec::check_all(check, call, payloads, n));
  for (const ByteView p : payloads) TITHE_TRY(check_array(call.context, p));
  return {};
}

Status decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                  std::span<float> out) {
  TITHE_TRY(check_arrays(call, payloads, out.size()));
  if (!merge.base)
    std::fill(out.begin(), out.end(), 0.0F);
  else if (merge.base != out.data())
    std::copy_n(merge.base, out.size(), out.begin());
  for (const ByteView p : payloads) {
    IndexReader indices(call.context);
    std::uint32_t index = 0;
    for (std::size_t j = 0; indices.read({&index, 1}) > 0; ++j)
      out[index] += sparse::value_at(indices.form().values, p.data(), j);
  }
  if (merge.divide != 1.0F)
    for (float& v : out) v /= merge.divide;
  return {};
}

Status decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                   std::span<float> out) {
  TITHE_TRY(check_arrays(call, payloads, out.size()));
  const IndexReader indices(call.context);
  sparse::merge_arrays<IndexReader>(payloads, merge, out, [&indices](ByteView payload) {
    return sparse::IndexedArray<IndexReader>{indices.form().values, payload.data(),
                                             sparse::IndexBatches(indices)};
  });
  return {};
}

Result<Combined> combine(const Call& call, std::size_t, Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check_array(call.context, acc));
  TITHE_TRY(check_array(call.context, in));
  const IndexReader indices(call.context);
  return Combined{sparse::add_arrays(indices.form().values, indices.count(), acc.data(), in.data(),
                                     residual_out, indices)};
}

constexpr Law kLeads[] = {Law::kLeader};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "indices", .laws = kLeads, .bound = bound_indices},
                             {.name = "values", .laws = kAdds, .bound = bound_values}};
constexpr Impl kImpls[] = {codec::simd({.encode = encode<largest::choose_simd, send_values_simd>,
                                        .decode = decode_simd,
                                        .check = check,
                                        .combine = combine}),
                           codec::reference({.encode = encode<largest::choose_ref, send_values_ref>,
                                             .decode = decode_ref,
                                             .check = check,
                                             .combine = combine})};

}  // namespace
}  // namespace scalecom

const Codec scalecom_codec = {.name = "scalecom",
                              .doc = "the values at indices that one rank names (Chen et al. 2020)",
                              .params = scalecom::kParams,
                              .phases = scalecom::kPhases,
                              .traits = {.exact_ledger = true},
                              .scratch = scalecom::scratch,
                              .impls = scalecom::kImpls};

}  // namespace tithe
