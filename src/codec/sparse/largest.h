// SPDX-License-Identifier: Apache-2.0
#pragma once
// The k = max(1, ceil(ratio * n)) values of largest magnitude, exactly; the lower index first among equals. Zeros are
// never chosen. What topk sends, and what qtopk and scalecom choose by.
#include "codec/sparse/sparse.h"
#include "tithe/codec.h"

namespace tithe::largest {

// Writes what is chosen as a plain payload (codec/sparse/sparse.h) and leaves the rest. Of the call they read the keys
// of random draws, which shape no byte, and scratch.
using Choose = Result<Encoded> (*)(const Call&, double ratio, const Carry&, Bytes out);
Result<Encoded> choose_ref(const Call&, double ratio, const Carry&, Bytes out);
Result<Encoded> choose_simd(const Call&, double ratio, const Carry&,
                            Bytes out);  // by vectors; needs scratch()

// choose_ref in any form.
Result<Encoded> send_ref(const sparse::Form& form, double ratio, const Carry&, Bytes out);

std::size_t scratch(double ratio, std::size_t n);

}  // namespace tithe::largest
