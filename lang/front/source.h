// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of a codec program, and the problems found in it.
//
//   several    up to kMaxProblems problems are collected, and sorted by their position in the text
//   display    each with file, line and column, the line itself, a caret below the position, and a cure
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tithe::lang {

// Bytes [first, end) of the text.
struct Span {
  std::size_t first = 0;
  std::size_t end = 0;
};

inline Span joined(Span a, Span b) { return {a.first, b.end}; }

struct Source {
  std::string name;  // shown in messages
  std::string text;
  std::string_view of(Span at) const { return std::string_view(text).substr(at.first, at.end - at.first); }
};

struct Problem {
  Span at;
  std::string what;  // one sentence
  std::string help;  // the cure; may be empty
  Span called = {};  // if the problem is in a function: the call that was being checked; else empty
};

inline constexpr std::size_t kMaxProblems = 20;

class Problems {
 public:
  // Adds a problem, unless there are kMaxProblems already or one at the same position.
  void add(Span at, std::string what, std::string help = {});
  // Marks the problems from number `first` on as being in a function called at `call`.
  void called_from(std::size_t first, Span call);
  bool any() const { return !all_.empty(); }
  std::size_t count() const { return all_.size(); }
  const std::vector<Problem>& all() const { return all_; }
  // All problems as text; every line ends with a newline.
  std::string text(const Source& source) const;

 private:
  std::vector<Problem> all_;
};

}  // namespace tithe::lang
