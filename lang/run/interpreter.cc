// SPDX-License-Identifier: Apache-2.0
#include "lang/run/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "codec/shared/common/payload.h"
#include "lang/run/indices.h"
#include "lang/run/walk.h"

namespace tithe::lang {

namespace {

// Bounds are computed without scratch, so a small plan is evaluated on the stack.
template <typename T>
T plan_number(const Combination& of, int node, const Settings& settings, std::size_t n,
              std::array<double, 2> arguments = {}) {
  const Checked& program = of.program;
  const Schedule& schedule = of.schedule;
  std::array<std::uint64_t, 256> on_stack;
  const std::size_t count = schedule.plan.size();
  const auto more =
      count > on_stack.size() ? std::make_unique_for_overwrite<std::uint64_t[]>(count) : nullptr;
  const Registers registers(program, schedule.plan_offset, more == nullptr ? on_stack.data() : more.get());
  for (const int k : schedule.plan)
    if (const Node& given = program.node(k); given.op == Op::kArgument)
      *registers.of<double>(k) = arguments[given.index];
  registers.compute_once(schedule.plan, {.settings = &settings, .n = n}, false);
  return *registers.of<T>(node);
}

}  // namespace

Combination::Combination(Checked of, std::size_t form_at)
    : program(std::move(of)), schedule(program), form(form_at) {
  for (const Item& item : program.items) {
    const bool follows = item.value != kNone && program.node(item.value).op == Op::kConst;
    const double number = follows ? program.node(item.value).number : 0;
    known.push_back(item.is_float ? std::bit_cast<std::uint32_t>(static_cast<float>(number))
                                  : static_cast<std::uint32_t>(static_cast<std::int64_t>(number)));
  }
}

double plan_value(const Combination& of, int node, const Settings& settings, std::size_t n) {
  return plan_number<double>(of, node, settings, n);
}
float plan_float(const Combination& of, int node, const Settings& settings, std::size_t n) {
  return plan_number<float>(of, node, settings, n);
}
double plan_value(const Combination& claim, const Settings& settings, std::size_t n,
                  std::array<double, 2> arguments) {
  return plan_number<double>(claim, claim.program.result, settings, n, arguments);
}
bool plan_truth(const Combination& claim, const Settings& settings, std::size_t n) {
  return plan_number<std::uint32_t>(claim, claim.program.result, settings, n) != 0;
}

std::uint32_t slots_of(const PairsLimits& limits, std::size_t length) {
  return static_cast<std::uint32_t>(std::max(1.0, std::ceil(limits.slots * static_cast<double>(length))));
}

PairsLimits limits_of(const Combination& of, const Settings& settings, std::size_t n) {
  // Indices and a program's n are u32, so encode rejects more values. Sizes of such tensors are upper bounds.
  if (n > sparse::kMaxValues) return {.most = n, .keep = n};
  const auto count = [&](int node, std::size_t otherwise) {
    if (node == kNone) return otherwise;
    const double v = plan_value(of, node, settings, n);
    return v > 0 ? static_cast<std::size_t>(std::min(v, static_cast<double>(otherwise))) : 0;
  };
  if (const Pairs& pairs = of.program.pairs; pairs.slots != kNone) {
    PairsLimits limits{.most = 0, .keep = 0, .slots = plan_value(of, pairs.slots, settings, n)};
    const auto of_table = [&](std::size_t length) {
      return std::min<std::size_t>(length, slots_of(limits, length));
    };
    limits.most = n / pairs.per * of_table(pairs.per) + of_table(n % pairs.per);
    limits.keep = limits.most;
    return limits;
  }
  const std::size_t most = count(of.program.pairs.most, n);
  return {.most = most, .keep = count(of.program.pairs.keep, most)};
}

namespace {

// A field of a sum is wide enough for the counted ranks; without a count, for the maximum number of ranks.
unsigned ranks_of(const Combination& of, const Call& call) {
  if (of.before != nullptr && of.before->program.counts) return wire::get<std::uint16_t>(call.context.data());
  if (of.before != nullptr && of.before->program.adds()) return int_fields::head_of(call.context).added;
  return max_ranks(of, call.settings);
}
unsigned bits_of(const Combination& of, unsigned ranks) {
  return int_fields::bits_for(of.program.items[0].top, ranks);
}

Status check_context(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                     const int_fields::Kernels& with) {
  return of.before == nullptr ? Status{} : check(*of.before, name, in_front(call), n, call.context, with);
}

}  // namespace

unsigned field_bits(const Combination& of, const Call& call) { return bits_of(of, ranks_of(of, call)); }

Status check_widths(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads) {
  const unsigned ranks = ranks_of(of, call);
  for (const ByteView p : payloads)
    if (int_fields::head_of(p).bits != bits_of(of, ranks) || int_fields::head_of(p).added > ranks)
      return {Code::kCorrupt, fmt::format("{}: int fields for another number of ranks", name)};
  return {};
}

int_fields::Form sum_form(const Combination& of, std::string_view name, const Settings& settings,
                          std::size_t n) {
  return {name, n, of.program.items[0].top, max_ranks(of, settings)};
}

std::size_t bound(const Combination& of, const Settings& settings, std::size_t n) {
  if (of.program.sends_indices || of.program.sends_values) return indices_bound(of, settings, n);
  if (of.program.adds()) return int_fields::bytes(n, bits_of(of, max_ranks(of, settings)));
  if (!of.program.sends_pairs) return payload_bytes(of.program, n);
  return sparse::bound(sparse::form_of(settings, of.form), limits_of(of, settings, n).most, n);
}

// Head, then the blocks in order. Short blocks are encoded together where encode_together() allows; their calls from
// blocks() are then skipped.
Result<Encoded> encode(const Combination& of, std::string_view name, const Call& call, const EncodeInput& in,
                       Bytes out, const int_fields::Kernels& with) {
  if (of.program.sends_indices || of.program.sends_values) return encode_indices(of, name, call, in, out);
  if (of.program.sends_pairs) TITHE_TRY(sparse::check_values(name, in.n));
  TITHE_TRY(codec::check_room(name, out.size(), bound(of, call.settings, in.n)));
  TITHE_TRY(check_context(of, name, call, in.n, with));
  CallMemory memory(call.scratch, walk_bytes(of, call.settings, in.n));
  Walk walk(of, name, call, in.n, memory);
  walk.begin(of, call, with);
  if (of.program.sends_pairs) {
    const PairsLimits limits = limits_of(of, call.settings, in.n);
    return walk.encode_pairs(in, sparse::form_of(call.settings, of.form), limits, out);
  }
  bool finite = true;
  std::size_t at = head_bytes(of.program, in.n);
  if (of.program.adds()) {
    const unsigned bits = field_bits(of, call);
    int_fields::put_head(out.data(), {1, bits});
    walk.begin_sum({1, bits}, nullptr, out.data(), with);
    at = int_fields::bytes(in.n, bits);
  }
  TITHE_TRY(walk.encode_head(in, out.data(), finite));
  std::size_t done = 0;  // number of values encoded together with an earlier block
  TITHE_TRY(walk.blocks([&](std::size_t first, std::size_t len) -> Status {
    if (first < done) return {};
    if (const std::size_t some = walk.encode_together(in, first, out.data(), out.data() + at); some != 0) {
      done = first + some * len;
      at += some * block_bytes(of.program, len);
      return {};
    }
    const Result<std::size_t> bytes = walk.encode_block(in, first, len, out.data(), out.data() + at, finite);
    if (!bytes.ok()) return bytes.status();
    at += *bytes;
    return {};
  }));
  return Encoded{at, finite};
}

// Walks the blocks as decode does, without computing values.
Status check(const Combination& of, std::string_view name, const Call& call, std::size_t n, ByteView payload,
             const int_fields::Kernels& with) {
  if (of.program.sends_indices || of.program.sends_values) return check_indices(of, name, call, n, payload);
  if (of.program.sends_pairs) return sparse::check(name, n, limits_of(of, call.settings, n).most, payload);
  if (of.program.adds()) return int_fields::check(with, sum_form(of, name, call.settings, n), payload);
  if (!of.program.varies()) TITHE_TRY(codec::check_size(name, payload.size(), payload_bytes(of.program, n)));
  std::size_t at = head_bytes(of.program, n);
  if (payload.size() < at) return codec::check_size(name, payload.size(), at);
  CallMemory memory(call.scratch, walk_bytes(of, call.settings, n));
  Walk walk(of, name, call, n, memory);
  TITHE_TRY(walk.check_head(payload));
  TITHE_TRY(walk.blocks([&](std::size_t first, std::size_t len) -> Status {
    const Result<std::size_t> bytes = walk.check_block(payload, at, first, len);
    if (!bytes.ok()) return bytes.status();
    at += *bytes;
    return {};
  }));
  return codec::check_size(name, payload.size(), at);
}

// All payloads are checked before the first value is written. Payloads are added one after the other: `base` is the
// caller's base for the first one, and `out` afterwards.
Status decode(const Combination& of, std::string_view name, const Call& call,
              std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
              const int_fields::Kernels& with) {
  if (of.program.sends_values) return decode_values(of, name, call, payloads, merge, out);
  for (const ByteView p : payloads) TITHE_TRY(check(of, name, call, out.size(), p, with));
  TITHE_TRY(check_context(of, name, call, out.size(), with));
  if (of.program.adds()) TITHE_TRY(check_widths(of, name, call, payloads));
  if (of.program.sends_pairs) {
    sparse::decode_ref(payloads, merge, out);
    return {};
  }
  if (payloads.empty())
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = merge.base ? merge.base[i] : 0.0F;
  const float* base = merge.base;
  CallMemory memory(call.scratch, walk_bytes(of, call.settings, out.size()));
  for (const ByteView payload : payloads) {
    memory.begin_again();
    Walk walk(of, name, call, out.size(), memory);
    walk.begin(of, call, with);
    if (of.program.adds()) walk.begin_sum(int_fields::head_of(payload), payload.data(), nullptr, with);
    TITHE_TRY(walk.check_head(payload));
    std::size_t at = head_bytes(of.program, out.size());
    const auto add = [&](std::size_t from, std::size_t count, const float* v) {
      for (std::size_t i = 0; i < count; ++i) out[from + i] = base ? base[from + i] + v[i] : v[i];
    };
    TITHE_TRY(walk.blocks([&](std::size_t first, std::size_t len) {
      at += walk.decode_block(payload, at, first, len, add);
      return Status{};
    }));
    base = out.data();
  }
  if (merge.divide != 1.0F)
    for (float& v : out) v /= merge.divide;
  return {};
}

}  // namespace tithe::lang
