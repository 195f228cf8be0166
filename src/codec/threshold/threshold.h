// SPDX-License-Identifier: Apache-2.0
#pragma once
// threshold: every value whose magnitude is at or above tau, however many these are. Zeros are never sent,
// not even at tau=0.
//
// tau is rounded to fp32 and compared as such: a tensor whose values all equal tau is sent whole, and nothing of one
// whose values all lie one ulp below. What is held back grows in the residual until it
// reaches tau.
//
// Layout   codec/sparse/sparse.h, at most n pairs
#include "tithe/codec.h"

namespace tithe {
extern const Codec threshold_codec;
}
