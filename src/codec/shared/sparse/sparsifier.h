// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts that codecs with a sparse payload (sparse/sparse.h) have in common: all but the selection of values.
// Decoders, packed forms of the fast encode, and the tables for the Codec row.
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe::sparse {

using Encode = Result<Encoded> (*)(const Call&, const EncodeInput&, Bytes);
using MergeAll = void (*)(std::span<const ByteView>, const Merge&, std::span<float>);

inline constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};

template <codec::Check kCheck, MergeAll kMerge>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(kCheck, call, payloads, out.size()));
  kMerge(payloads, merge, out);
  return {};
}

// kPlain writes plain payloads and needs kOwn bytes of scratch; kFirst is the parameter `values` (see form_of).
template <const Codec& kCodec, std::size_t kFirst, Encode kPlain,
          std::size_t (*kOwn)(const Settings&, std::size_t)>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const Settings& s = call.settings;
  if (form_of(s, kFirst).plain()) return kPlain(call, in, out);
  TITHE_TRY(codec::check_room(kCodec.name, out.size(), kCodec.phases[0].bound(s, in.n)));
  TITHE_TRY(codec::check_scratch(kCodec.name, call.scratch.size(), kCodec.scratch(s, in.n)));
  return encode_packed(call, kFirst, in, kOwn(s, in.n), kPlain, out);
}

// kReference is the readable encode; it writes any form.
template <const Codec& kCodec, std::size_t kFirst, codec::Check kCheck, Encode kReference, Encode kPlain,
          std::size_t (*kOwn)(const Settings&, std::size_t)>
inline constexpr Impl kImpls[] = {codec::simd({.encode = encode<kCodec, kFirst, kPlain, kOwn>,
                                               .decode = decode<kCheck, decode_simd>,
                                               .check = kCheck,
                                               .clear_sent = clear_sent_simd}),
                                  codec::reference({.encode = kReference,
                                                    .decode = decode<kCheck, decode_ref>,
                                                    .check = kCheck,
                                                    .clear_sent = clear_sent_ref})};

}  // namespace tithe::sparse
