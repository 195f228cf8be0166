// SPDX-License-Identifier: Apache-2.0
#include "codec/scalecom/scalecom.h"

#include "base/bytes.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/agreed.h"
#include "codec/shared/sparse/largest.h"

namespace tithe {
namespace scalecom {
namespace {

enum Param : std::size_t { kRatio, kValues, kIndices };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent", {}, Role::kRatio},
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

sparse::Agreed agreed(const Settings& s, std::size_t n) { return {"scalecom", form(s), most(s, n)}; }

Status check(const Call& call, std::size_t n, ByteView payload) {
  const sparse::Agreed of = agreed(call.settings, n);
  return call.phase == 0 ? sparse::check_agreed(of, n, payload) : sparse::check_array(of, payload);
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

template <largest::Choose kChoose, sparse::SendAt kSendAt>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("scalecom", in.n));
  if (call.phase == 0) return choose_indices(kChoose, call, in, out);
  return kSendAt(agreed(call.settings, in.n), call.context, in, out);
}

template <sparse::DecodeAt kDecodeAt>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  return kDecodeAt(agreed(call.settings, out.size()), call.context, payloads, merge, out);
}

Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* residual_out) {
  return sparse::add_at(agreed(call.settings, n), call.context, acc, in, residual_out);
}

constexpr Law kLeads[] = {Law::kLeader};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "indices", .laws = kLeads, .bound = bound_indices},
                             {.name = "values", .laws = kAdds, .bound = bound_values}};
constexpr Impl kImpls[] = {codec::simd({.encode = encode<largest::choose_simd, sparse::send_at_simd>,
                                        .decode = decode<sparse::decode_at_simd>,
                                        .check = check,
                                        .combine = combine}),
                           codec::reference({.encode = encode<largest::choose_ref, sparse::send_at_ref>,
                                             .decode = decode<sparse::decode_at_ref>,
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
