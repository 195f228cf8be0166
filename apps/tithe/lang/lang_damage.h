// SPDX-License-Identifier: Apache-2.0
#pragma once
// Payloads as they may arrive and as nobody sends them.
#include <functional>

#include "lang_subject.h"

namespace tithe::cli {

// Calls each(payload, what was done to it) of some 1500 payloads that come of a good one, the same ones every time:
//
//   bits     one to three are flipped; some payloads are cut, or longer
//   bytes    all are 0, ones, drawn; a number's four bytes are those of odd floats, wherever it stands
//   fields   each number and array of the first block and of the last one, as `program` lays them out, holds the ends
//            of its type, alone and with others
void each_damage(const lang::Checked& program, std::size_t n, const Payload& good,
                 const std::function<void(const Payload&, const std::string&)>& each);

}  // namespace tithe::cli
