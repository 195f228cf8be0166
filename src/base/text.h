// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text that came from elsewhere, made fit to be shown.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tithe {

// Valid UTF-8 of at most `most` bytes, cut between characters. White space becomes a blank; other control characters,
// marks that turn the direction of writing, and bytes that are no UTF-8 become '?'. Printable text stays as it is.
std::string printable(std::string_view text, std::size_t most);

// The words of `name=value,name=value` in order; a word without '=' has an empty value.
std::vector<std::pair<std::string_view, std::string_view>> settings_in(std::string_view text);

}  // namespace tithe
