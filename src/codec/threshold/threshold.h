// SPDX-License-Identifier: Apache-2.0
#pragma once
// threshold: sends every value whose magnitude is at least tau, however many these are. Zeros are never sent, not even
// at tau=0.
//
// tau is rounded to fp32 before it is compared: values equal to tau are sent, values one ulp below are not. Unsent
// values add up in the residual until they reach tau.
//
// Layout   codec/shared/sparse/sparse.h, at most n pairs
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec threshold_codec;
}
