// SPDX-License-Identifier: Apache-2.0
#pragma once
// The syntax tree of a codec program: parse() produces it and check() consumes it. Names are not resolved and nothing
// has a type yet. All text points into the source.
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lang/front/source.h"

namespace tithe::lang {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : std::uint8_t {
  kNumber,  // number, whole
  kName,    // text
  kUnary,   // text is one of: - ~ not; args[0] is the operand
  kBinary,  // text is the operator; args[0], args[1]
  kIs,      // args[0] is a parameter, text the word to compare it with
  kIf,      // args: condition, then, else
  kCall,    // text is the function; args; where
};

struct Expr {
  ExprKind kind = ExprKind::kNumber;
  Span at;
  std::string_view text = {};
  double number = 0;
  bool whole = false;
  std::vector<ExprPtr> args = {};
  ExprPtr where = nullptr;  // only in reductions: which values take part
};

struct Name {
  std::string_view text;
  Span at;
};

// param NAME: real = 0.01 in 1e-6 .. 1 "doc"  |  param NAME: int = 4 in 2 .. 8 "doc"
// param NAME: one of a, b = b "doc"
struct Param {
  Name name;
  bool whole = false;
  double fallback = 0;  // of a word parameter: the index of the default word
  double low = 0;
  double high = 0;
  std::vector<Name> words = {};
  std::string_view doc = {};
};

struct Let {
  Name name;
  ExprPtr value;
};

struct Function {
  Name name;
  std::vector<Name> args;
  ExprPtr body;
};

// once NAME: u8 = expr  |  table NAME: u8 where ...  |  NAME: u<bits>[] = expr where ...  |  table NAME: u16 per 1024
// NAME: int[]
struct SendItem {
  Name name;
  Span type_at;
  bool once = false;
  bool table = false;
  bool is_float = false;    // f32
  unsigned bits = 0;        // of u1 .. u32; 0: width
  ExprPtr width = nullptr;  // of u<width>: the width
  bool trits = false, places = false;
  bool ints = false;  // int[]: integers that are summed over ranks
  bool array = false;
  bool full = false;               // [block]: short blocks are padded to a full block
  std::optional<double> per = {};  // a table of byte counts: one entry per this many values
  ExprPtr when = nullptr;          // sent only in settings that satisfy this condition
  ExprPtr value = nullptr;         // empty: the encode binding of the same name
  ExprPtr where = nullptr;
};

// pairs where ... at most ... else largest ...  |  pairs where ... slots ... per 65536
// indices where ... at most ...
struct SendPairs {
  Span at;
  bool indices = false;  // sends the indices without the values
  ExprPtr where;
  ExprPtr slots = nullptr;
  double per = 0;
  ExprPtr most = nullptr;
  ExprPtr keep = nullptr;
};

// claim unbiased  |  claim exact  |  claim contraction EXPR where EXPR  |  claim error EXPR where EXPR
// claim constants where EXPR
struct Claim {
  Name name;
  ExprPtr value = nullptr;
  ExprPtr where = nullptr;
};

// `phase NAME by LAW` and its sections. A file without phase sections has a single phase with an empty name.
struct PhaseText {
  Name name;
  Name law;
  std::vector<Let> encode;
  std::vector<SendItem> send;
  std::optional<SendPairs> pairs;
  std::optional<Span> values;  // `values at indices`
  std::vector<Let> decode;
  ExprPtr result = nullptr;  // of the last phase; empty if the phase sends pairs
  bool named() const { return !name.text.empty(); }
};

struct File {
  Name name;
  std::string_view doc;
  std::vector<Param> params;
  std::vector<Let> plan;
  std::vector<Function> functions;
  std::vector<Claim> claims;
  ExprPtr block = nullptr;        // empty: one block of all values
  std::vector<PhaseText> phases;  // at least one
};

}  // namespace tithe::lang
