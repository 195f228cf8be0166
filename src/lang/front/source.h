// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of a codec program, and what is wrong with it.
//
//   several    problems are collected, at most kMostProblems of them, in the order of the text
//   shown      each with its file, line and column, the line itself, a caret under what is meant, and a cure
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
  std::string name;  // as messages name it
  std::string text;
  std::string_view of(Span at) const { return std::string_view(text).substr(at.first, at.end - at.first); }
};

struct Problem {
  Span at;
  std::string what;  // one sentence
  std::string help;  // what to write instead; may be empty
  Span called = {};  // in a function: the call of it; empty elsewhere
};

inline constexpr std::size_t kMostProblems = 20;

class Problems {
 public:
  // One more; not if there are kMostProblems already, or one at the same place.
  void add(Span at, std::string what, std::string help = {});
  // Problems from the `first`-th on are in a function that was called there.
  void called_from(std::size_t first, Span call);
  bool any() const { return !all_.empty(); }
  std::size_t count() const { return all_.size(); }
  const std::vector<Problem>& all() const { return all_; }
  // All of them as text, a newline at the end of each line.
  std::string text(const Source& source) const;

 private:
  std::vector<Problem> all_;
};

}  // namespace tithe::lang
