// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd_shared: qsgd under norms that all ranks share, so that levels add up as integers and no hop rounds again (QSGD
// by Alistarh et al., NeurIPS 2017, in the form that a sum needs). Layout: codec/shared/int_sum/shared_levels.h.
//
// The shared norm is the largest of all ranks. If ranks differ much, qsgd has the smaller error.
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec qsgd_shared_codec;
}
