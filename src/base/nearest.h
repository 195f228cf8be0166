// SPDX-License-Identifier: Apache-2.0
#pragma once
// "Did you mean" suggestions for every name that a user can get wrong.
#include <span>
#include <string>
#include <string_view>

namespace tithe {

// The only known name with this prefix; else the name with the smallest edit distance from `wrong`. Empty if the
// distance is more than three, or more than half of the letters.
std::string_view nearest_name(std::string_view wrong, std::span<const std::string_view> known);

// "did you mean 'topk'? known: fp32, topk, ...", or the second half alone. Names are quoted if any contains a comma.
std::string suggest(std::string_view wrong, std::span<const std::string_view> known);

}  // namespace tithe
