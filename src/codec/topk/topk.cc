// SPDX-License-Identifier: Apache-2.0
#include "codec/topk/topk.h"

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/largest.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace topk {
namespace {

enum Param : std::size_t { kRatio, kForm };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent", {}, Role::kRatio},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), most(s, n), n); }

// The unsent values hold at most their share of the energy; a rounded form loses some of what is sent.
double contraction(const Settings& s, std::size_t n) {
  const double sent = static_cast<double>(most(s, n)) / static_cast<double>(n);
  return 1 - sent * sparse::kKeptEnergy[static_cast<std::size_t>(form(s).values)];
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("topk", n, most(call.settings, n), payload);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  return largest::send_ref(form(call.settings), call.settings[kRatio], in, out);
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return largest::scratch(s[kRatio], n); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), most(s, n));
}

Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("topk", call.scratch.size(), scratch(call.settings, in.n)));
  return largest::choose_simd(call, call.settings[kRatio], in, out);
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<topk_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace

}  // namespace topk

const Codec topk_codec = {.name = "topk",
                          .doc = "the largest values, chosen exactly (Aji and Heafield 2017)",
                          .params = topk::kParams,
                          .phases = topk::kPhases,
                          .traits = {.exact_ledger = true, .selects = true, .contraction = topk::contraction},
                          .scratch = topk::scratch,
                          .impls = topk::kImpls};

}  // namespace tithe
