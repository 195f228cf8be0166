// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "codec/shared/sparse/sparse.h"
#include "codec/typical.h"

namespace tithe::sparse {

// The bytes of a payload with `count` of n values, about.
std::size_t typical(const Form& form, double count, std::size_t n);

}  // namespace tithe::sparse
