// SPDX-License-Identifier: Apache-2.0
#include "lang/lists/indices_fast.h"

#include "codec/shared/common/payload.h"
#include "lang/lists/pairs.h"
#include "lang/run/indices.h"

namespace tithe::lang {

namespace {

std::size_t choice_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  return (plain_scratch(of, settings, n) + 63) / 64 * 64;
}

}  // namespace

std::size_t indices_scratch(const Combination& of, const Settings& settings, std::size_t n) {
  if (of.program.sends_values || n == 0) return 0;
  return choice_scratch(of, settings, n) + sparse::bytes(limits_of(of, settings, n).most);
}

// The library's kernels write a list of pairs to the scratch; only its indices are sent.
Result<Encoded> encode_indices_fast(const Combination& of, std::string_view name, const Call& call,
                                    const EncodeInput& in, Bytes out) {
  TITHE_TRY(sparse::check_values(name, in.n));
  const sparse::Agreed a = agreed_list(of, name, call.settings, in.n);
  if (of.program.sends_values) {
    TITHE_TRY(check_indices_in_front(of, name, call, in.n));
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

Status decode_values_fast(const Combination& of, std::string_view name, const Call& call,
                          std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  TITHE_TRY(check_indices_in_front(of, name, call, out.size()));
  return sparse::decode_at_simd(agreed_list(of, name, call.settings, out.size()), call.context, payloads,
                                merge, out);
}

}  // namespace tithe::lang
