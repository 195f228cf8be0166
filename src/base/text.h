// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes untrusted text safe to display.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tithe {

// Valid UTF-8 of at most `most` bytes, cut between characters. White space becomes a blank. Other control characters,
// marks that change the writing direction, and bytes that are not UTF-8 become '?'. Printable text is unchanged.
std::string printable(std::string_view text, std::size_t most);

// The items of `name=value,name=value` in order; an item without '=' has an empty value.
std::vector<std::pair<std::string_view, std::string_view>> settings_in(std::string_view text);

}  // namespace tithe
