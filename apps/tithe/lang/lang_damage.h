// SPDX-License-Identifier: Apache-2.0
#pragma once
// Payloads that no codec writes but that may arrive.
#include <functional>

#include "lang_subject.h"

namespace tithe::cli {

// Calls each(payload, description) for some 1500 damaged versions of a valid payload, the same ones every time:
//
//   - bits: one to three flipped bits; some payloads are truncated or extended.
//   - bytes: all bytes 0, all ones, random; an unusual float written over the four bytes at each position.
//   - fields: each number and array of the first and the last block, in the layout of `program`, set to the limits of
//     its type, alone and combined.
void each_damage(const lang::Checked& program, std::size_t n, const Payload& good,
                 const std::function<void(const Payload&, const std::string&)>& each);

}  // namespace tithe::cli
