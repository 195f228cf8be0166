// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec program as it was written: what parse() makes and check() reads. Names are not looked up yet, and nothing
// has a type. All text points into the source.
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
  kUnary,   // text is - ~ not; args[0]
  kBinary,  // text is the operator; args[0], args[1]
  kIs,      // args[0] is a parameter, text the word it may be
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
  ExprPtr where = nullptr;  // of reductions: which values count
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
  double fallback = 0;  // with words: the index of one
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
  ExprPtr width = nullptr;  // of u<width>
  bool trits = false, places = false;
  bool ints = false;  // whole numbers that add up
  bool array = false;
  bool full = false;               // [block]
  std::optional<double> per = {};  // of so many values the bytes
  ExprPtr when = nullptr;          // only in settings in which this holds
  ExprPtr value = nullptr;         // none: encode's of the same name
  ExprPtr where = nullptr;
};

// pairs where ... at most ... else largest ...  |  pairs where ... slots ... per 65536
// indices where ... at most ...
struct SendPairs {
  Span at;
  bool indices = false;  // without the values
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

// phase NAME by LAW, and what stands below it. A file without one has a single phase, with no name here.
struct PhaseText {
  Name name;
  Name law;
  std::vector<Let> encode;
  std::vector<SendItem> send;
  std::optional<SendPairs> pairs;
  std::optional<Span> values;  // values at indices
  std::vector<Let> decode;
  ExprPtr result = nullptr;  // of the last phase; none: of pairs
  bool named() const { return !name.text.empty(); }
};

struct File {
  Name name;
  std::string_view doc;
  std::vector<Param> params;
  std::vector<Let> plan;
  std::vector<Function> functions;
  std::vector<Claim> claims;
  ExprPtr block = nullptr;        // none: all values
  std::vector<PhaseText> phases;  // one at least
};

}  // namespace tithe::lang
