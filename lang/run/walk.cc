// SPDX-License-Identifier: Apache-2.0
// A walk reads a block run by run. Each pass computes the nodes that its reductions need and ends with their results;
// the last pass sends the values. Invariant: no result depends on kRun, because a reduction gives the same result for
// all lengths of runs (reduce.h).
#include "lang/run/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/finite.h"
#include "base/rng.h"
#include "codec/dragonn/dragonn.h"
#include "lang/run/fields.h"

namespace tithe::lang {

// The same code measures and allocates (CallMemory): `codes` is nullptr when measuring.
WalkMemory::WalkMemory(CallMemory& memory, const Combination& of, const Settings& settings, std::size_t n) {
  const Checked& program = of.program;
  const Schedule& schedule = of.schedule;
  const std::size_t items = program.items.size(), block = program.block == 0 ? n : std::min(program.block, n);
  registers = memory.take<std::uint8_t>(schedule.bytes);
  if (n >= kRun && blocks_together(program) != 0) numbers = memory.take<std::uint8_t>(schedule.bytes);
  found = memory.take<Reduction>(schedule.max_found);
  looked = memory.take<Reduction>(schedule.looked.reduce.size());
  lookup_values = memory.take<std::uint64_t>(kRun * schedule.looked.reduce.size());
  codes = memory.take<std::uint32_t*>(items);
  widths = memory.take<std::uint32_t*>(items);
  lengths = memory.take<std::uint64_t>(items);
  for (std::size_t k = 0; k < items && program.varies(); ++k) {
    const Item& item = program.items[k];
    if (!item.array || !item.in_block()) continue;
    std::uint32_t* const held = memory.take<std::uint32_t>(block);
    std::uint32_t* const wide = item.coding == Coding::kWidths ? memory.take<std::uint32_t>(block) : nullptr;
    if (codes == nullptr) continue;
    codes[k] = held;
    widths[k] = wide;
  }
  const bool samples = std::any_of(program.nodes.begin(), program.nodes.end(),
                                   [](const Node& node) { return node.op == Op::kThreshold; });
  if (program.sends_pairs || samples) picked = memory.take<std::uint32_t>(n);
  if (!program.sends_pairs) return;
  values = memory.take<float>(n);
  if (program.pairs.slots != kNone)
    slots = memory.take<std::uint32_t>(slots_of(limits_of(of, settings, n), std::min(program.pairs.per, n)));
}

std::size_t walk_bytes(const Combination& of, const Settings& settings, std::size_t n) {
  CallMemory measure;
  WalkMemory(measure, of, settings, n);
  if (!of.program.before.empty()) {
    measure.take<Walk>(1);
    WalkMemory(measure, *of.before, settings, n);
  }
  return measure.used();
}

// Computes the plan nodes; all later nodes depend on them.
Walk::Walk(const Combination& of, std::string_view name, const Call& call, std::size_t n, CallMemory& memory)
    : program_(of.program),
      schedule_(of.schedule),
      name_(name),
      memory_(memory),
      own_(memory, of, call.settings, n),
      registers_(program_, schedule_, own_.registers),
      together_(n >= kRun ? blocks_together(program_) : 0),
      numbers_(program_, schedule_, own_.numbers),
      varies_(program_.varies()),
      max_ranks_(program_.counts || program_.adds() ? max_ranks(of, call.settings) : 0) {
  inputs_ = {.settings = &call.settings,
             .n = n,
             .key = key_of(call, call.seed),
             .shared_key = key_of(call, call.shared_seed)};
  registers_.compute_once(schedule_.plan, inputs_);
  std::fill_n(own_.lengths, program_.items.size(), std::uint64_t{0});
}

// ---- Items of the previous phase

// The context is the previous phase's payload. A second walk, over that phase's program, reads it block by block and
// run by run, in step with this walk.
void Walk::begin(const Combination& of, const Call& call, const int_fields::Kernels& with) {
  if (program_.before.empty()) return;
  before_ = new (memory_.take<Walk>(1)) Walk(*of.before, name_, in_front(call), inputs_.n, memory_);
  context_ = call.context;
  if (before_->program_.adds()) {
    const int_fields::Head head = int_fields::head_of(context_);
    before_->begin_sum(head, context_.data(), nullptr, with);
    inputs_.added[1] = head.added;
  }
  static_cast<void>(before_->check_head(context_));
  for (const Item& item : program_.before)
    if (item.once && item.input != kNone) receive(item, before_->sent(item), 1);
  registers_.compute_once(schedule_.all, inputs_);
}

void Walk::begin_sum(int_fields::Head head, const std::uint8_t* in, std::uint8_t* out,
                     const int_fields::Kernels& with) {
  inputs_.added[0] = head.added;
  field_bits_ = head.bits;
  fields_in_ = in;
  fields_out_ = out;
  // The library's kernels start at multiples of kRow; so do blocks if their length is a multiple of kRow.
  fields_ = program_.block % int_fields::kRow == 0 ? &with : &int_fields::kReference;
}

void Walk::begin_block(std::size_t first, std::size_t len) {
  context_at_ = first == 0 ? head_bytes(before_->program_, inputs_.n) : context_next_;
  before_->inputs_.length = len;
  context_next_ = context_at_ + *before_->read_block(context_, context_at_, first, len, {});
  for (const Item& item : program_.before)
    if (!item.once && !item.array && item.input != kNone) receive(item, before_->sent(item), 1);
}

void Walk::begin_run(std::size_t count) {
  before_->inputs_.first = inputs_.first;
  before_->inputs_.at = inputs_.at;
  before_->read_run(context_.data() + context_at_, inputs_.length, inputs_.at, count, {});
  for (const Item& item : program_.before)
    if (item.array && item.input != kNone) receive(item, before_->sent(item), count);
}

// The values just read of an item that the next phase also lists.
const std::uint32_t* Walk::sent(const Item& item) const {
  const auto same = [&](const Item& own) { return own.name == item.name; };
  return registers_.of<std::uint32_t>(
      std::find_if(program_.items.begin(), program_.items.end(), same)->input);
}

// ---- Passes and reductions

// Returns false if `looks` and a value is not finite; the remaining passes are then skipped.
bool Walk::find(const std::vector<Pass>& passes, const EncodeInput& in, std::size_t first, std::size_t len,
                bool looks) {
  bool finite = true;
  for (const Pass& pass : passes) {
    registers_.compute_once(pass.block, inputs_);
    const std::span reductions(own_.found, pass.reduce.size());
    std::uninitialized_default_construct(reductions.begin(), reductions.end());
    runs(first, len, [&](std::size_t at, std::size_t count) {
      take(in, at, count);
      finite = finite && (!looks || all_finite({current_values_, count}));
      registers_.compute_values(pass.value, inputs_, count);
      for (std::size_t r = 0; r < reductions.size(); ++r)
        if (registers_.node(pass.reduce[r]).op != Op::kThreshold)
          reductions[r].add(registers_, pass.reduce[r], count);
    });
    if (!finite) return false;
    for (std::size_t r = 0; r < reductions.size(); ++r) {
      const int k = pass.reduce[r];
      if (registers_.node(k).op == Op::kThreshold)
        threshold(in, k);
      else
        reductions[r].finish(registers_, k);
      if (schedule_.filled[static_cast<std::size_t>(k)]) registers_.fill(k);
    }
  }
  return true;
}

// Computes one number per block and reduces these numbers like values of a block, in runs of kRun. Returns false if a
// value is not finite.
bool Walk::look(const EncodeInput& in) {
  bool finite = true;
  const Nodes& found = schedule_.looked.reduce;
  const std::span reductions(own_.looked, found.size());
  std::uninitialized_default_construct(reductions.begin(), reductions.end());
  std::size_t count = 0;  // of pending numbers
  const auto width = [&](std::size_t r) {
    return registers_.node(registers_.node(found[r]).in[0]).type == Type::kF64 ? 8 : 4;
  };
  const auto end_run = [&](std::size_t r) {
    const int from = registers_.node(found[r]).in[0];
    std::uint8_t* to = registers_.of<std::uint8_t>(from);
    for (std::size_t b = 0; b < count; ++b)
      std::memcpy(to + b * width(r), &own_.lookup_values[r * kRun + b], width(r));
    reductions[r].add(registers_, found[r], count);
  };
  static_cast<void>(blocks([&](std::size_t first, std::size_t len) {
    finite = finite && find(schedule_.look, in, first, len, true);
    if (!finite) return Status{};
    registers_.compute_once(schedule_.looked.block, inputs_);
    for (std::size_t r = 0; r < found.size(); ++r) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, registers_.of<std::uint8_t>(registers_.node(found[r]).in[0]), width(r));
      own_.lookup_values[r * kRun + count] = bits;
    }
    if (++count < kRun) return Status{};
    for (std::size_t r = 0; r < found.size(); ++r) end_run(r);
    count = 0;
    return Status{};
  }));
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (count > 0) end_run(r);
    reductions[r].finish(registers_, found[r]);
    if (schedule_.filled[static_cast<std::size_t>(found[r])]) registers_.fill(found[r]);
  }
  return finite;
}

// ---- Values

void Walk::take(const EncodeInput& in, std::size_t at, std::size_t count) {
  const Nodes& taken = schedule_.taken;
  float* to = taken.empty() ? unread_ : registers_.of<float>(taken[0]);
  for (std::size_t i = 0; i < count; ++i) to[i] = in.value(at + i);
  current_values_ = to;
  for (std::size_t k = 1; k < taken.size(); ++k) std::copy_n(to, count, registers_.of<float>(taken[k]));
  for (const int k : schedule_.grad) std::copy_n(in.grad + at, count, registers_.of<float>(k));
}

// Returns false if a sent value or a residual is not finite.
bool Walk::leave(const EncodeInput& in, std::size_t at, std::size_t count) const {
  if (program_.result == kNone) return true;  // only the last phase leaves residuals
  const float* sent = registers_.of<float>(program_.result);
  bool finite = all_finite({sent, count});
  if (in.residual_out == nullptr) return finite;
  float* left = in.residual_out + at;
  for (std::size_t i = 0; i < count; ++i) left[i] = current_values_[i] - sent[i];
  return all_finite({left, count}) && finite;
}

// A block with a non-finite value is sent as zeros.
std::size_t Walk::nothing(const EncodeInput& in, std::size_t first, std::size_t len, std::uint8_t* to,
                          bool& finite) {
  finite = false;
  std::fill_n(to, block_bytes(program_, len), std::uint8_t{0});
  if (in.residual_out != nullptr && program_.result != kNone)
    for (std::size_t i = first; i < first + len; ++i) in.store_residual(i, 0.0F);
  return block_bytes(program_, len);
}

void Walk::receive(const Item& item, const std::uint32_t* values, std::size_t count) {
  if (item.input == kNone) return;
  std::copy_n(values, count, registers_.of<std::uint32_t>(item.input));
  if (!item.array && schedule_.filled[static_cast<std::size_t>(item.input)]) registers_.fill(item.input);
}

bool Walk::reads_values() const {
  return std::any_of(program_.items.begin(), program_.items.end(),
                     [&](const Item& item) {
                       return item.where != kNone && registers_.node(item.where).stage == Stage::kValue;
                     }) ||
         std::any_of(program_.items.begin(), program_.items.end(),
                     [](const Item& item) { return item.array && item.is_float; });
}

// Checks the `where` conditions of one stage: once per call, per block, or for this run's values.
Status Walk::holds(Stage of, std::size_t count, Code code, std::size_t first) const {
  const bool values = of == Stage::kValue;
  for (const Item& item : program_.items) {
    if (values && item.array && item.is_float && item.input != kNone &&
        !all_finite({registers_.of<float>(item.input), count}))
      return {code, fmt::format("{}: '{}' of block {} is not finite", name_, item.name, number_of(first))};
    if (item.where == kNone) continue;
    const Stage stage = registers_.node(item.where).stage;
    if ((stage == Stage::kPlan ? Stage::kBlock : stage) != of) continue;
    const std::uint32_t* truth = registers_.of<std::uint32_t>(item.where);
    if (std::find(truth, truth + count, 0U) == truth + count) continue;
    if (of == Stage::kAll)
      return {code, fmt::format("{}: '{}' violates its 'where' condition", name_, item.name)};
    return {code, fmt::format("{}: '{}' of block {} violates its 'where' condition", name_, item.name,
                              number_of(first))};
  }
  return {};
}

void Walk::threshold(const EncodeInput& in, int k) const {
  const Node& node = registers_.node(k);
  const double ratio = *registers_.of<double>(node.in[0]), share = *registers_.of<double>(node.in[1]);
  const select::Sample sample = select::plan_sample(in.n, ratio, share);
  *registers_.of<std::uint32_t>(k) = select::threshold_ref(sample, inputs_.key, ratio, in, own_.picked);
}

std::size_t Walk::entry(const Item& item, std::size_t first) const {
  std::size_t table = once_bytes(program_);
  for (const Item* in_front = program_.items.data(); in_front != &item; ++in_front)
    table += table_bytes(*in_front, program_, inputs_.n);
  return table + first / (item.per != 0 ? item.per : program_.block) * item_bytes(item, 1);
}

Status Walk::corrupt(const std::string& what) const {
  return {Code::kCorrupt, fmt::format("{}: {}", name_, what)};
}

// ---- Pairs

// Keeps the last candidate of each slot; returns the number kept.
std::size_t Walk::keep_last(const PairsLimits& limits, std::span<std::uint32_t> picked) const {
  const std::size_t per = program_.pairs.per;
  const auto key = static_cast<std::uint32_t>(mix64(inputs_.key) >> 32);
  std::size_t kept = 0;
  for (std::size_t k = 0; k < picked.size();) {
    const std::size_t first = picked[k] / per * per;
    const std::uint32_t slots = slots_of(limits, std::min(per, inputs_.n - first));
    std::size_t end = k;
    for (; end < picked.size() && picked[end] < first + per; ++end)
      own_.slots[dragonn::slot_of(picked[end], key, slots)] = picked[end];
    for (; k < end; ++k)
      if (own_.slots[dragonn::slot_of(picked[k], key, slots)] == picked[k]) picked[kept++] = picked[k];
  }
  return kept;
}

std::span<std::uint32_t> Walk::pick(const EncodeInput& in, const PairsLimits& limits) {
  inputs_.length = inputs_.n;
  find(schedule_.passes, in, 0, in.n, false);
  registers_.compute_once(schedule_.send.block, inputs_);
  std::size_t picked = 0;
  runs(0, in.n, [&](std::size_t at, std::size_t count) {
    take(in, at, count);
    registers_.compute_values(schedule_.send.value, inputs_, count);
    const std::uint32_t* goes = registers_.of<std::uint32_t>(program_.pairs.where);
    for (std::size_t i = 0; i < count; ++i)
      if (goes[i] != 0) own_.picked[picked++] = static_cast<std::uint32_t>(at + i);
  });
  const std::span<std::uint32_t> all(own_.picked, picked);
  if (program_.pairs.slots != kNone) return all.first(keep_last(limits, all));
  if (picked <= limits.most) return all;
  for (std::size_t i = 0; i < in.n; ++i) own_.values[i] = in.value(i);
  return all.first(select::keep_largest(limits.keep, {own_.values, in.n}, all));
}

Encoded Walk::encode_pairs(const EncodeInput& in, const sparse::Form& form, const PairsLimits& limits,
                           Bytes out) {
  const std::span<const std::uint32_t> picked = pick(in, limits);
  for (std::size_t k = 0; k < picked.size(); ++k) own_.values[k] = in.value(picked[k]);
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    finite = finite && is_finite(in.value(i));
    in.store_residual(i, 0.0F);
  }
  for (const std::uint32_t i : picked)
    if (in.residual_out != nullptr) in.residual_out[i] = 0.0F;
  return {.bytes = sparse::write(form, in.n, picked, own_.values, in.residual_out, out), .finite = finite};
}

}  // namespace tithe::lang
