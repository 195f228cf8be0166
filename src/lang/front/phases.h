// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs of several phases: in which order phases stand, and what of a sum can be decoded.
//
//   max, leader, sum   a phase in front of others: what comes out is one payload, which the next phase reads
//   decode, sum        the last one. A file that names no phase has one, by decode
#include "lang/front/ast.h"
#include "lang/front/checked.h"

namespace tithe::lang {

inline constexpr std::size_t kMostPhases = 4;

// By which the payloads of a phase combine; kDecode for a phase that is not there.
Law law_of(const File& file, std::size_t phase);

// Unknown laws, laws that cannot stand where they do, too many phases.
void check_phases(const File& file, Problems& problems);

// True if node `k` is a multiple of what a phase that adds sends, so that of a sum it is the sum of what it is of each
// payload: f32(level) * scale is one, and `level > 0` is none.
bool is_multiple(const Checked& program, int k);

}  // namespace tithe::lang
