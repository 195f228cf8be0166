// SPDX-License-Identifier: Apache-2.0
#include "lang/front/tokenize.h"

#include <algorithm>
#include <charconv>

namespace tithe::lang {

namespace {

constexpr std::string_view kSymbols[] = {"..", "<=", ">=", "==", "!=", "<<", ">>", "[]", "+",
                                         "-",  "*",  "/",  "%",  "&",  "|",  "^",  "~",  "<",
                                         ">",  "=",  "(",  ")",  ",",  ":",  "[",  "]"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Tokenizer {
 public:
  Tokenizer(const Source& source, Problems& problems) : text_(source.text), problems_(problems) {}

  std::vector<Token> run() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // byte order mark
    while (at_ < text_.size()) step();
    push(TokenKind::kNewline, at_);
    push(TokenKind::kEnd, at_);
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::size_t first) {
    tokens_.push_back({.kind = kind, .at = {first, at_}, .text = text_.substr(first, at_ - first)});
  }

  void step() {
    const std::size_t first = at_;
    const char c = text_[at_];
    if (c == '\n') {
      ++at_;
      if (open_ > 0 && section_follows()) open_ = 0;
      if (open_ == 0 && !tokens_.empty() && tokens_.back().kind != TokenKind::kNewline)
        push(TokenKind::kNewline, first);
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"') {
      string(first);
    } else if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      push(TokenKind::kName, first);
    } else if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number(first);
    } else {
      symbol(first);
    }
  }

  // True if the next line starts in column 0 with a section's word.
  bool section_follows() const {
    const std::string_view rest = text_.substr(at_);
    return std::any_of(std::begin(kSections), std::end(kSections), [&](std::string_view word) {
      const char after = rest.size() > word.size() ? rest[word.size()] : '\n';
      return rest.starts_with(word) && !is_letter(after) && !is_digit(after);
    });
  }

  void string(std::size_t first) {
    const std::size_t end = text_.find_first_of("\"\n", first + 1);
    if (end == std::string_view::npos || text_[end] == '\n') {
      at_ = std::min(end, text_.size());
      problems_.add({first, at_}, "unterminated string", "add the closing \"");
      return;
    }
    at_ = end + 1;
    push(TokenKind::kString, first);
    tokens_.back().text = text_.substr(first + 1, end - first - 1);
  }

  void number(std::size_t first) {
    const bool hex = text_.substr(first).starts_with("0x");
    bool whole = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '.' && text_.substr(at_).starts_with("..")) break;  // the range operator
      const bool exponent = hex ? c == 'p' : c == 'e';
      if (!is_digit(c) && !is_letter(c) && c != '.') break;
      if (c == '.' || exponent) whole = false;
      ++at_;
      if (exponent && at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
    }
    const std::string_view all = text_.substr(first, at_ - first);
    const std::string_view digits = all.substr(hex ? 2 : 0);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                              hex ? std::chars_format::hex : std::chars_format::general);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
      problems_.add({first, at_}, "invalid number", "write numbers as 12, 0x7f, 0.5, 1e-3 or 0x1p-23");
      value = 1;
    }
    push(TokenKind::kNumber, first);
    tokens_.back().number = value;
    tokens_.back().whole = whole;
  }

  void symbol(std::size_t first) {
    for (const std::string_view symbol : kSymbols)
      if (text_.substr(at_).starts_with(symbol)) {
        at_ += symbol.size();
        if (symbol == "(") ++open_;
        if (symbol == ")" && open_ > 0) --open_;
        push(TokenKind::kSymbol, first);
        return;
      }
    while (at_ < text_.size() && (static_cast<signed char>(text_[at_]) < 0 || at_ == first)) ++at_;
    problems_.add({first, at_}, "unexpected character", "comments start with #");
  }

  std::string_view text_;
  Problems& problems_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t open_ = 0;  // number of open parentheses
};

}  // namespace

std::vector<Token> tokenize(const Source& source, Problems& problems) {
  return Tokenizer(source, problems).run();
}

}  // namespace tithe::lang
