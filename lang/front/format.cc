// SPDX-License-Identifier: Apache-2.0
#include "lang/front/format.h"

#include <algorithm>
#include <vector>

#include "lang/front/tokenize.h"

namespace tithe::lang {

namespace {

struct Line {
  std::string code;     // without leading and trailing spaces
  std::string comment;  // including the #
  std::size_t indent = 0;
  bool continues = false;  // the line starts within parentheses
};

std::string_view first_word(std::string_view code) {
  const auto end = code.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return code.substr(0, end);
}
// A word followed by '=' or ':' is a name that is bound, even if sections have that name; the parser agrees.
bool is_section(std::string_view code) {
  const std::string_view word = first_word(code);
  if (std::find(std::begin(kSections), std::end(kSections), word) == std::end(kSections)) return false;
  std::string_view rest = code.substr(word.size());
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  return !rest.starts_with(':') && (!rest.starts_with('=') || rest.starts_with("=="));
}
bool is_phase(std::string_view code) { return first_word(code) == "phase" && is_section(code); }
// The sections whose contents are on the following lines.
bool is_body(std::string_view code) { return code == "encode" || code == "send" || code == "decode"; }

// Replaces each run of spaces outside quotes by one. `open` counts open parentheses.
Line split(std::string_view text, int& open) {
  Line line;
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  line.indent = begin;
  bool quoted = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (!quoted && c == '#') {
      line.comment = text.substr(i);
      break;
    }
    if (!quoted && (c == ' ' || c == '\t' || c == '\r')) {
      if (!line.code.empty() && line.code.back() != ' ') line.code += ' ';
      continue;
    }
    if (!quoted) open += c == '(' ? 1 : c == ')' ? -1 : 0;
    line.code += c;
  }
  for (std::string* part : {&line.code, &line.comment}) part->erase(part->find_last_not_of(" \t\r") + 1);
  open = std::max(open, 0);
  return line;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> all;
  int open = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const int before = open;
    Line line = split(text.substr(at, end - at), open);
    if (before > 0 && is_section(line.code)) {  // a section ends open parentheses (tokenize.h)
      open = 0;
      line = split(text.substr(at, end - at), open);
    }
    line.continues = before > 0 && !is_section(line.code);
    all.push_back(std::move(line));
    at = end + 1;
  }
  return all;
}

// The position behind the name in "NAME = ..." or "plan NAME = ..."; npos for other lines.
std::size_t name_end(const Line& line) {
  const std::size_t at = line.code.find(" =");
  if (line.continues || at == std::string::npos || line.code.compare(at, 3, " ==") == 0)
    return std::string::npos;
  std::string_view name = std::string_view(line.code).substr(0, at);
  while (name.ends_with(' ')) name.remove_suffix(1);
  if (name.starts_with("plan ")) name.remove_prefix(5);
  return first_word(name).size() == name.size() && !name.empty() ? name.size() : std::string::npos;
}

// Whether two adjacent lines share a column for '='.
bool same_form(const Line& a, const Line& b) {
  return a.code.starts_with("plan ") == b.code.starts_with("plan ");
}

void align(std::vector<Line>& lines) {
  for (std::size_t first = 0; first < lines.size(); ++first) {
    std::size_t end = first, most = 0;
    while (end < lines.size() && (lines[end].continues || (name_end(lines[end]) != std::string::npos &&
                                                           same_form(lines[first], lines[end])))) {
      if (!lines[end].continues) most = std::max(most, name_end(lines[end]));
      ++end;
    }
    for (std::size_t k = first; k < end; ++k)
      if (!lines[k].continues) lines[k].code.insert(lines[k].code.find(" ="), most - name_end(lines[k]), ' ');
    first = std::max(first, end == first ? end : end - 1);
  }
}

}  // namespace

std::string formatted(std::string_view text) {
  std::vector<Line> lines = lines_of(text);
  align(lines);
  std::string out;
  bool body = false, empty = true, heads = false;  // state of the previous line
  for (const Line& line : lines) {
    if (line.code.empty() && line.comment.empty()) {
      if (!empty) out += '\n';
      empty = true;
      continue;
    }
    if ((is_phase(line.code) || (is_body(line.code) && !heads)) && !empty) out += '\n';
    heads = is_phase(line.code);
    if (is_section(line.code) && !line.continues) body = is_body(line.code);
    const bool indented = body && !is_body(line.code);
    std::string whole(line.continues ? std::max<std::size_t>(line.indent, 2) : indented ? 2 : 0, ' ');
    if (line.code.empty() && line.indent == 0) whole.clear();
    whole += line.code;
    if (!line.comment.empty()) whole += (line.code.empty() ? "" : "  ") + line.comment;
    out += whole + '\n';
    empty = false;
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace tithe::lang
