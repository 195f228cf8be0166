// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec program whose names, types, stages and ranges are known: what check() makes and the interpreter runs.
//
// A program is checked once for each combination of its whole-number and word parameters, so that these are constants
// here; `Checked` is one such combination. Parameters that are real numbers, n and the values stay open.
//
//   nodes      in an order in which each stands behind what it reads
//   stages     plan: once for a call; all: the same, of what was found of all blocks; block: once for a block; value:
//              for each value. A node is of the latest stage of what it reads; a reduction is of the block's, and one
//              over blocks of all's
//   passes     a reduction of pass p can be computed when those of the passes before it are; a block is read once for
//              each pass, and once to send
//   total      every node has a value for all that it can read: no bytes can make one fail
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lang/front/source.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

enum class Type : std::uint8_t { kBool, kI32, kU32, kF32, kF64 };
const char* name(Type type);
inline bool is_float(Type t) { return t == Type::kF32 || t == Type::kF64; }
inline bool is_whole(Type t) { return t == Type::kI32 || t == Type::kU32; }

enum class Stage : std::uint8_t { kPlan, kAll, kBlock, kValue };

enum class Op : std::uint8_t {
  // Inputs
  kConst,   // number
  kParam,   // a real parameter: index
  kN,       // values of the call
  kLength,  // values of the block
  kTaken,   // gradient plus residual
  kGrad,    // the gradient alone
  kItem,    // what was sent: index
  kBefore,  // what the phase in front of this one agreed on: index
  kAdded,   // how many payloads what was sent is the sum of; index 1: what kBefore is
  // For each value or number
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kNeg,
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShiftLeft,
  kShiftRight,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kLogicNot,
  kSelect,
  kAbs,
  kMin,
  kMax,
  kClamp,
  kFloor,
  kCeil,
  kRound,
  kSqrt,
  kDivide,
  kSignbit,
  kCopysign,
  kBits,
  kFloat,
  kHalf,      // the nearest binary16, as its bits
  kFromHalf,  // back
  kConvert,
  // Random
  kDraw,        // index: bits; of this rank
  kSharedDraw,  // index: bits; the same on all ranks
  kLevel,       // stochastic_level(value, scale): index: bits
  // On a block's values in order, and on its tables
  kScan,      // what the values up to this one add up to
  kRank,      // of a kOrder: the place that sort gives this value
  kEntry,     // of a table: the entry that the second operand numbers; 0 behind the last
  kSums,      // of a kHistogram the table of what its entries up to this one add up to; index: entries
  kArgument,  // of a reduction's function: index 0 or 1
  // Reductions: the second operand, if any, says which values count
  kSum,
  kMean,
  kLargest,
  kSmallest,
  kCount,
  kAny,
  kAll,
  kThreshold,  // sampled_threshold(ratio, share)
  kReduce,  // by a function of the program: index: which of Checked::foldings; the third operand: its start
  // Tables, as kSums is: kEntry, kRank and kSums read them, and nothing else does
  kHistogram,  // how many values are 0, 1, ...; index: entries
  kSort,       // a block's values from the smallest to the largest
  kOrder,      // of each value of a block its place among them
};             // clang-format off above

inline bool is_table(Op op) {
  return op == Op::kSums || op == Op::kHistogram || op == Op::kSort || op == Op::kOrder;
}

inline constexpr int kNone = -1;

// The range of a value, both ends included; NaN aside, which stands for what has no value.
struct Range {
  double low = 0;
  double high = 0;
  bool constant() const { return low == high; }
};

struct Node {
  Op op = Op::kConst;
  Type type = Type::kF32;
  Stage stage = Stage::kPlan;
  bool decode = false;  // reads what was sent
  bool late = false;    // reads what was found of all blocks
  bool before = false;  // reads what the phase in front of this one agreed on
  unsigned pass = 0;    // passes that must be over
  std::array<int, 3> in = {kNone, kNone, kNone};
  double number = 0;
  unsigned index = 0;
  Range range = {};
};

// How an array, or a number, stands in a payload (lang/run/codings.h).
enum class Coding : std::uint8_t {
  kCodes,   // each in the same number of bits
  kWidths,  // each in its own number of bits, which follows from what stands in front
  kTrits,   // 0, 1 or 2: five to a byte, and runs of ones shortened
  kPlaces,  // how many are 1, and where
  kBytes,   // a number: the bytes of some blocks
  kInts  // whole numbers that add up (codec/shared/int_sum/int_fields.h): an array of all values, alone in its payload
};

struct Item {
  std::string name;
  Span at;
  bool once = false;
  bool table = false;  // those of all blocks stand together, in front of the blocks
  bool is_float = false;
  bool array = false;
  Coding coding = Coding::kCodes;
  unsigned bits = 0;     // of kWidths the most
  std::size_t full = 0;  // an array of so many in short blocks, too: those past the last value are 0
  std::size_t per = 0;   // of kBytes: of so many values
  int width = kNone;     // of kWidths: bits of each
  unsigned top = 0;      // of kInts the largest of one rank; what is sent is the distance from `low`
  double low = 0;
  int value = kNone;  // what encode sends
  int input = kNone;  // what decode reads; none: the receiver knows the value
  int where = kNone;  // what must hold of it
  bool in_block() const { return !once && !table; }
};

// The function that a kReduce computes of two values.
struct Folding {
  int left = kNone;  // a kArgument, as right is
  int right = kNone;
  std::vector<int> body = {};  // the value nodes, in order
  int result = kNone;
};

struct Pairs {
  int where = kNone;
  int most = kNone;  // f64, plan; none: n
  int keep = kNone;  // none: as most
  // The slots for each `per` values, in units of them (f64, plan; none: all go). Every value that may go gets one of
  // the slots at random, and the last one in a slot goes (codec/dragonn/dragonn.h).
  int slots = kNone;
  std::size_t per = 0;
};

// One phase of a program, in one combination of its constants.
struct Checked {
  Law law = Law::kDecode;
  // By kMax, in front of a sum: a payload begins with a u16, how many ranks it is of.
  bool counts = false;
  std::vector<Item> before;  // what the phase in front of it sent; `input` is what reads it here
  std::vector<Node> nodes;
  std::vector<Item> items;
  std::vector<Folding> foldings;
  bool sends_pairs = false;
  bool sends_indices = false;  // the pairs without their values, by kLeader
  bool sends_values = false;   // those at the indices that the phase in front of it sent, by kSum
  Pairs pairs;
  int result = kNone;            // f32, value: what is decoded
  std::size_t block = 0;         // values; 0: all
  bool block_of_params = false;  // a parameter says it: other settings have other blocks
  unsigned passes = 0;           // over a block before it is sent
  std::vector<double> params;    // the combination; of real ones their fallback

  const Node& node(int k) const { return nodes[static_cast<std::size_t>(k)]; }
  // True if a payload's size depends on the values.
  bool varies() const;
  bool adds() const { return items.size() == 1 && items[0].coding == Coding::kInts; }
};

}  // namespace tithe::lang
