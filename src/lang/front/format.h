// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec program in the one form that its text should have:
//
//   spaces     sections begin at the left, what is in them two spaces further; one space between words, two in front of
//              a comment behind them; none at a line's end
//   lines      one empty line at most, and one in front of phase, encode, send and decode, but for the section
//              right below `phase`
//   columns    the '=' of neighbouring names stand below each other
//   the same   only spaces and empty lines change: the same tokens and comments, and what was formatted stays
// Whatever is not in order is formatted as far as it goes.
#include <string>
#include <string_view>

namespace tithe::lang {

std::string formatted(std::string_view text);

}  // namespace tithe::lang
