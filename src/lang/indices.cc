// SPDX-License-Identifier: Apache-2.0
#include "lang/indices.h"

#include "codec/common/payload.h"
#include "codec/sparse/agreed.h"
#include "lang/pairs.h"
#include "lang/walk.h"

namespace tithe::lang {

namespace {

const Combination& leading(const Combination& of) { return of.program.sends_indices ? of : *of.before; }

sparse::Agreed agreed(const Combination& of, std::string_view name, const Settings& settings, std::size_t n) {
  return {name, sparse::form_of(settings, of.form), limits_of(leading(of), settings, n).most};
}

std::size_t choice_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  return (plain_scratch(of, settings, n) + 63) / 64 * 64;
}

Status check_context(const Combination& of, std::string_view name, const Call& call, std::size_t n) {
  return check_indices(*of.before, name, in_front(call), n, call.context);
}

}  // namespace

std::size_t indices_bound(const Combination& of, const Settings& settings, std::size_t n) {
  const sparse::Agreed a = agreed(of, {}, settings, n);
  return of.program.sends_indices ? sparse::indices_bound(a.form, a.most, n)
                                  : sparse::value_bytes(a.form.values, a.most);
}

std::size_t indices_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  if (of.program.sends_values || n == 0) return 0;
  return choice_scratch(of, settings, n) + sparse::bytes(limits_of(of, settings, n).most);
}

Status check_indices(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                     ByteView payload) {
  const sparse::Agreed a = agreed(of, name, call.settings, n);
  return of.program.sends_indices ? sparse::check_agreed(a, n, payload) : sparse::check_array(a, payload);
}

Result<Encoded> encode_indices(const Combination& of, std::string_view name, const Call& call,
                               const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values(name, in.n));
  const sparse::Agreed a = agreed(of, name, call.settings, in.n);
  if (of.program.sends_values) {
    TITHE_TRY(check_context(of, name, call, in.n));
    return sparse::send_at_ref(a, call.context, in, out);
  }
  TITHE_TRY(codec::check_room(name, out.size(), indices_bound(of, call.settings, in.n)));
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i)
    finite = finite && sparse::magnitude(in.take(i)) < sparse::kFirstNonFinite;
  const std::vector<std::uint32_t> picked =
      Walk(of, name, call, in.n).pick(in, limits_of(of, call.settings, in.n));
  return Encoded{.bytes = sparse::write_indices(a.form, in.n, picked, out), .finite = finite};
}

// A choice by the library's kernels is a list of pairs in the scratch; its indices go.
Result<Encoded> encode_indices_fast(const Combination& of, std::string_view name, const Call& call,
                                    const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values(name, in.n));
  const sparse::Agreed a = agreed(of, name, call.settings, in.n);
  if (of.program.sends_values) {
    TITHE_TRY(check_context(of, name, call, in.n));
    return sparse::send_at_simd(a, call.context, in, out);
  }
  if (plan_pairs(of.program).kind == PairsKind::kOther || in.n == 0 || a.most == 0)
    return encode_indices(of, name, call, in, out);
  TITHE_TRY(codec::check_room(name, out.size(), indices_bound(of, call.settings, in.n)));
  TITHE_TRY(codec::check_scratch(name, call.scratch.size(), indices_scratch(of, call.settings, in.n)));
  const Bytes pairs = call.scratch.subspan(choice_scratch(of, call.settings, in.n));
  const Result<Encoded> done = encode_pairs(of, call, {in.grad, in.residual, nullptr, in.n}, pairs);
  if (!done.ok()) return done;
  const std::size_t count = sparse::Pairs(pairs).count();
  const auto* index = reinterpret_cast<const std::uint32_t*>(pairs.data() + sparse::kHead);
  return Encoded{.bytes = sparse::write_indices(a.form, in.n, {index, count}, out), .finite = done->finite};
}

Status decode_values(const Combination& of, std::string_view name, const Call& call,
                     std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  TITHE_TRY(check_context(of, name, call, out.size()));
  return sparse::decode_at_ref(agreed(of, name, call.settings, out.size()), call.context, payloads, merge,
                               out);
}

Status decode_values_fast(const Combination& of, std::string_view name, const Call& call,
                          std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  TITHE_TRY(check_context(of, name, call, out.size()));
  return sparse::decode_at_simd(agreed(of, name, call.settings, out.size()), call.context, payloads, merge,
                                out);
}

Result<Combined> combine_values(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                                Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check_context(of, name, call, n));
  return sparse::add_at(agreed(of, name, call.settings, n), call.context, acc, in, residual_out);
}

}  // namespace tithe::lang
