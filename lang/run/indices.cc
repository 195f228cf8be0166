// SPDX-License-Identifier: Apache-2.0
#include "lang/run/indices.h"

#include "codec/shared/common/payload.h"
#include "lang/run/walk.h"

namespace tithe::lang {

namespace {

const Combination& leading(const Combination& of) { return of.program.sends_indices ? of : *of.before; }

}  // namespace

sparse::Agreed agreed_list(const Combination& of, std::string_view name, const Settings& settings,
                           std::size_t n) {
  return {name, sparse::form_of(settings, of.form), limits_of(leading(of), settings, n).most};
}

Status check_indices_in_front(const Combination& of, std::string_view name, const Call& call, std::size_t n) {
  return check_indices(*of.before, name, in_front(call), n, call.context);
}

std::size_t indices_bound(const Combination& of, const Settings& settings, std::size_t n) {
  const sparse::Agreed a = agreed_list(of, {}, settings, n);
  return of.program.sends_indices ? sparse::indices_bound(a.form, a.most, n)
                                  : sparse::value_bytes(a.form.values, a.most);
}

Status check_indices(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                     ByteView payload) {
  const sparse::Agreed a = agreed_list(of, name, call.settings, n);
  return of.program.sends_indices ? sparse::check_agreed(a, n, payload) : sparse::check_array(a, payload);
}

Result<Encoded> encode_indices(const Combination& of, std::string_view name, const Call& call,
                               const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values(name, in.n));
  const sparse::Agreed a = agreed_list(of, name, call.settings, in.n);
  if (of.program.sends_values) {
    TITHE_TRY(check_indices_in_front(of, name, call, in.n));
    return sparse::send_at_ref(a, call.context, in, out);
  }
  TITHE_TRY(codec::check_room(name, out.size(), indices_bound(of, call.settings, in.n)));
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i)
    finite = finite && sparse::magnitude(in.value(i)) < sparse::kFirstNonFinite;
  CallMemory memory(call.scratch, walk_bytes(of, call.settings, in.n));
  const std::span<const std::uint32_t> picked =
      Walk(of, name, call, in.n, memory).pick(in, limits_of(of, call.settings, in.n));
  return Encoded{.bytes = sparse::write_indices(a.form, in.n, picked, out), .finite = finite};
}

Status decode_values(const Combination& of, std::string_view name, const Call& call,
                     std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  TITHE_TRY(check_indices_in_front(of, name, call, out.size()));
  return sparse::decode_at_ref(agreed_list(of, name, call.settings, out.size()), call.context, payloads,
                               merge, out);
}

Result<Combined> combine_values(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                                Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check_indices_in_front(of, name, call, n));
  return sparse::add_at(agreed_list(of, name, call.settings, n), call.context, acc, in, residual_out);
}

}  // namespace tithe::lang
