// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checked codec program: names are resolved, and types, stages and ranges are known. check() produces it, and the
// interpreter and the code generators consume it.
//
// A program is checked once for each combination of its integer and word parameters, so these are constants here; one
// `Checked` holds one combination. Real parameters, n and the values stay variables.
//
//   nodes      in topological order: the operands of a node precede it
//   stages     plan: computed once per call; all: once per call, from results over all blocks; block: once per block;
//              value: once per value. A node has the latest stage of its operands. A reduction has stage block, and a
//              reduction over blocks has stage all
//   passes     a reduction of pass p needs the results of passes 1 .. p - 1. Each pass reads the block once, and
//              sending reads it once more
//   total      every node has a defined result for every possible operand, so no payload can make evaluation fail
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
  kN,       // number of values of the call
  kLength,  // number of values of the block
  kTaken,   // gradient plus residual
  kGrad,    // the gradient alone
  kItem,    // a received item: index
  kBefore,  // an item of the previous phase, after it was combined over ranks: index
  kAdded,   // the number of payloads that were summed; index 1: those of kBefore
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
  kFromHalf,  // binary16 bits to f32
  kConvert,
  // Random
  kDraw,        // index: number of bits; differs between ranks
  kSharedDraw,  // index: number of bits; the same on all ranks
  kLevel,       // stochastic_level(value, scale): index: bits
  // Over a block's values in order, and over its tables
  kScan,      // prefix sum, this value included
  kRank,      // of a kOrder: this value's position in sorted order
  kEntry,     // of a table: the entry numbered by the second operand; 0 behind the end
  kSums,      // the prefix sums of a kHistogram, as a table; index: number of entries
  kArgument,  // an argument of a folding: index 0 or 1
  // Reductions: the second operand, if any, selects the values that take part
  kSum,
  kMean,
  kLargest,
  kSmallest,
  kCount,
  kAny,
  kAll,
  kThreshold,  // sampled_threshold(ratio, share)
  kReduce,     // with Checked::foldings[index]; the third operand is the start value
  // Tables, like kSums. Only kEntry, kRank and kSums read them.
  kHistogram,  // counts of the values 0, 1, ...; index: number of entries
  kSort,       // a block's values in ascending order
  kOrder,      // for each value of a block its position in sorted order
};

inline bool is_table(Op op) {
  return op == Op::kSums || op == Op::kHistogram || op == Op::kSort || op == Op::kOrder;
}

inline constexpr int kNone = -1;

// The range of a value, both ends included. NaN is outside every range: it marks a value that does not exist.
struct Range {
  double low = 0;
  double high = 0;
  bool constant() const { return low == high; }
};

struct Node {
  Op op = Op::kConst;
  Type type = Type::kF32;
  Stage stage = Stage::kPlan;
  bool decode = false;  // depends on received items
  bool late = false;    // depends on results over all blocks
  bool before = false;  // depends on items of the previous phase
  unsigned pass = 0;    // number of passes that must be complete
  std::array<int, 3> in = {kNone, kNone, kNone};
  double number = 0;
  unsigned index = 0;
  Range range = {};
  std::string name = {};  // in the program, if it has one there
};

// How an array or a number is stored in a payload (lang/run/codings.h).
enum class Coding : std::uint8_t {
  kCodes,   // fixed width
  kWidths,  // a width per value, which follows from the items before it
  kTrits,   // 0, 1 or 2: five per byte, with runs of ones shortened
  kPlaces,  // a count of ones and their positions
  kBytes,   // a number: the bytes that some blocks take
  kInts     // integers summed over ranks (codec/shared/int_sum/int_fields.h): one array, alone in its payload
};

struct Item {
  std::string name;
  Span at;
  bool once = false;
  bool table = false;  // one entry per block; the table precedes the blocks
  bool is_float = false;
  bool array = false;
  Coding coding = Coding::kCodes;
  unsigned bits = 0;     // with kWidths: the maximum
  std::size_t full = 0;  // array length in short blocks too: elements past the last value are 0
  std::size_t per = 0;   // of kBytes: values per entry
  int width = kNone;     // of kWidths: the node with the width of each value
  unsigned top = 0;      // of kInts: the maximum of one rank; the payload holds the distance from `low`
  double low = 0;
  int value = kNone;  // the node that encode sends
  int input = kNone;  // the node that decode reads; none: the receiver can compute the value
  int where = kNone;  // the condition that the item must satisfy
  bool in_block() const { return !once && !table; }
};

// The two-argument function of a kReduce.
struct Folding {
  int left = kNone;  // a kArgument; so is `right`
  int right = kNone;
  std::vector<int> body = {};  // the nodes of stage value, in order
  int result = kNone;
};

struct Pairs {
  int where = kNone;
  int most = kNone;  // node, f64, plan stage; none: n
  int keep = kNone;  // node; none: the same as `most`
  // The number of slots per `per` values (node, f64, plan stage; none: no slots, all selected values are sent). Each
  // selected value is hashed to a random slot, and the last value in a slot is sent (codec/dragonn/dragonn.h).
  int slots = kNone;
  std::size_t per = 0;
};

// One phase of a program, in one combination of its constants.
struct Checked {
  Law law = Law::kDecode;
  // With kMax before a kSum: a payload begins with a u16, the number of ranks that it combines.
  bool counts = false;
  std::vector<Item> before;  // the previous phase's items; `input` is the node that reads one here
  std::vector<Node> nodes;
  std::vector<Item> items;
  std::vector<Folding> foldings;
  bool sends_pairs = false;
  bool sends_indices = false;  // kLeader: indices without values
  bool sends_values = false;   // kSum: the values at the indices of the previous phase
  Pairs pairs;
  int result = kNone;            // node, f32, value stage: the decoded value
  std::size_t block = 0;         // in values; 0: one block of all values
  bool block_of_params = false;  // the block length depends on a parameter
  unsigned passes = 0;           // over a block before it is sent
  std::vector<double> params;    // the combination; for a real parameter its default

  const Node& node(int k) const { return nodes[static_cast<std::size_t>(k)]; }
  // True if a payload's size depends on the values.
  bool varies() const;
  bool adds() const { return items.size() == 1 && items[0].coding == Coding::kInts; }
};

// Calls of(k) for each reference from outside `nodes` to the result of an expression; k may be kNone.
template <typename Program, typename Of>
void each_result(Program& program, const Of& of) {
  for (auto& item : program.items)
    for (auto* k : {&item.value, &item.where, &item.width}) of(*k);
  for (auto& folding : program.foldings) of(folding.result);
  for (auto* k : {&program.pairs.where, &program.pairs.most, &program.pairs.keep, &program.pairs.slots})
    of(*k);
  of(program.result);
}

}  // namespace tithe::lang
