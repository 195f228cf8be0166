// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs with several phases: the permitted order of laws, and which decoders are linear.
//
//   max, leader, sum   a phase before another one: its payloads combine to one payload, which the next phase reads
//   decode, sum        the last phase. A file without phase sections has one phase, by decode
#include "lang/front/ast.h"
#include "lang/front/checked.h"

namespace tithe::lang {

inline constexpr std::size_t kMaxPhases = 4;

// How the payloads of a phase combine; kDecode if the phase does not exist.
Law law_of(const File& file, std::size_t phase);

// Reports unknown laws, laws in a wrong position, and too many phases.
void check_phases(const File& file, Problems& problems);

// True if node `k` is a linear function of the items of a sum phase: its value for a sum of payloads is then the sum
// of its values for each payload. f32(level) * scale is linear; level > 0 is not.
bool is_multiple(const Checked& program, int k);

}  // namespace tithe::lang
