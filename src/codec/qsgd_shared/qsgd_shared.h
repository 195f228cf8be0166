// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd_shared: qsgd under norms that all ranks share, so that levels add up as whole numbers and no hop rounds again
// (the form that Alistarh et al., NeurIPS 2017, need for a sum on the way). Layout in codec/int_sum/shared_levels.h.
//
// The largest norm of all ranks is everybody's: where ranks differ much, qsgd rounds less away.
#include "tithe/codec.h"

namespace tithe {
extern const Codec qsgd_shared_codec;
}
