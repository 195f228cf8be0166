// SPDX-License-Identifier: Apache-2.0
// Decides which programs have kernels, with the reason for all others.
#include <algorithm>

#include "codec/shared/sparse/sparse.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/cuda/emit_cuda_lengths.h"
#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

bool has_lengths(const Checked& program) {
  return needs_lookup(program) ||
         std::any_of(program.items.begin(), program.items.end(), [](const Item& item) {
           return item.coding == Coding::kWidths || item.coding == Coding::kPlaces ||
                  item.coding == Coding::kBytes;
         });
}

namespace {

constexpr std::size_t kMaxShared = 40U << 10;  // of codes; a thread block can use 48 KB
constexpr std::size_t kMaxAgreed = 32;         // Call::agreed

// The only supported form with trits: numbers, then one array of all values.
bool sends_trits_alone(const Checked& program) {
  std::size_t arrays = 0;
  for (const Item& item : program.items) arrays += item.array ? 1U : 0U;
  return program.block == 0 && arrays == 1 && program.items.back().array;
}

const char* no_blocks(const Checked& program, const Schedule& schedule) {
  const bool is_long = program.block == 0 || program.block > kPiece;
  for (const Item& item : program.items) {
    if (item.coding == Coding::kTrits && !sends_trits_alone(program))
      return "tithe generates no kernels for trits of blocks, or for trits next to other codes";
    if (item.full != 0 && item.coding == Coding::kCodes && is_long)
      return "tithe generates no kernels for padded blocks of more than 8192 values";
  }
  if (has_lengths(program) && is_long)
    return "tithe generates no kernels for blocks of different lengths with more than 8192 values";
  if (shared_bytes(program) > kMaxShared)
    return "the codes of a block exceed the shared memory of a thread block";
  for (const auto* passes : {&schedule.look, &schedule.passes})
    for (const Pass& pass : *passes)
      for (const int k : pass.reduce)
        if (program.node(k).op == Op::kThreshold)
          return "tithe generates no kernels for a sampled threshold without pairs";
  return nullptr;
}

// Operators that depend on the order of a block's values, or produce a table, have no kernels.
const char* no_order(const Checked& program) {
  for (const Node& node : program.nodes) {
    if (node.op == Op::kScan) return "tithe generates no kernels for scan";
    if (node.op == Op::kHistogram) return "tithe generates no kernels for histogram";
    if (node.op == Op::kSort) return "tithe generates no kernels for sort";
    if (node.op == Op::kOrder) return "tithe generates no kernels for rank";
  }
  return nullptr;
}

}  // namespace

const char* no_kernels(const Combination& of, const Settings& settings) {
  const bool phases = of.before != nullptr || of.program.law != Law::kDecode;
  if (phases && by_kernels(of)) return "tithe generates no kernels for a list that is agreed on in phases";
  if (of.program.before.size() > kMaxAgreed) return "the previous phase sends more than 32 items";
  if (phases && (has_lengths(of.program) || of.program.varies()))
    return "tithe generates no kernels for blocks of different lengths that are agreed on in phases";
  if (const char* why = no_order(of.program)) return why;
  if (!of.program.sends_pairs) return no_blocks(of.program, of.schedule);
  if (!sparse::form_of(settings, of.form).plain())
    return "kernels support lists only with values=fp32 and indices=u32";
  return nullptr;
}

}  // namespace tithe::lang
