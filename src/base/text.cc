// SPDX-License-Identifier: Apache-2.0
// Decodes UTF-8 character by character and replaces everything that is unsafe to print.
#include "base/text.h"

#include <algorithm>
#include <cstdint>

namespace tithe {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: invalid UTF-8
};

// The first character of a non-empty text (RFC 3629: shortest form, no surrogates, at most U+10FFFF).
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kMinCode[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool is_space(std::uint32_t c) { return (c >= 0x09 && c <= 0x0d) || c == 0x2028 || c == 0x2029; }

bool is_hidden(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  while (!text.empty()) {
    const Character c = first_of(text);
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    std::string_view shown = text.substr(0, bytes);
    if (c.bytes == 0 || is_hidden(c.code)) shown = "?";
    if (is_space(c.code) && c.bytes > 0) shown = " ";
    if (out.size() + shown.size() > most) break;
    out += shown;
    text.remove_prefix(bytes);
  }
  return out;
}

std::vector<std::pair<std::string_view, std::string_view>> settings_in(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, comma - at);
    const std::size_t equals = std::min(word.find('='), word.size());
    out.emplace_back(word.substr(0, equals), word.substr(std::min(equals + 1, word.size())));
    at = comma + 1;
  }
  return out;
}

}  // namespace tithe
