// SPDX-License-Identifier: Apache-2.0
#pragma once
// Exact selection of the k = max(1, ceil(ratio * n)) values of largest magnitude, the lower index first among equals.
// Zeros are never selected. Used by topk, qtopk and programs.
#include "codec/shared/sparse/sparse.h"
#include "tithe/seam/codec.h"

namespace tithe::largest {

// Writes the selected values as a plain payload (sparse/sparse.h); all others go to residual_out. Reads of the
// call only scratch and the keys of random draws; the draws affect speed, not the payload.
using Choose = Result<Encoded> (*)(const Call&, double ratio, const EncodeInput&, Bytes out);
Result<Encoded> choose_ref(const Call&, double ratio, const EncodeInput&, Bytes out);
// SIMD; needs scratch() bytes of scratch.
Result<Encoded> choose_simd(const Call&, double ratio, const EncodeInput&, Bytes out);

// choose_ref, but writes the payload in any form, and selects from each `block` values for themselves.
Result<Encoded> send_ref(const sparse::Form& form, double ratio, std::size_t block, const EncodeInput&,
                         Bytes out);

std::size_t scratch(double ratio, std::size_t n);

}  // namespace tithe::largest
