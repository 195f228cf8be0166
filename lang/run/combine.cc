// SPDX-License-Identifier: Apache-2.0
// How payloads of a phase combine: number by number for max, field by field for sum.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codec/shared/common/payload.h"
#include "lang/run/fields.h"
#include "lang/run/indices.h"
#include "lang/run/tables.h"

namespace tithe::lang {

namespace {

// Floats compare by sort keys, with -0 below +0, so the result's bits do not depend on the order of ranks.
std::uint32_t larger(const Item& item, std::uint32_t a, std::uint32_t b) {
  if (!item.is_float) return std::max(a, b);
  return value_of(Type::kF32, std::max(key_of(Type::kF32, a), key_of(Type::kF32, b)));
}

void max_numbers(const Item& item, std::uint8_t* acc, const std::uint8_t* in) {
  put_number(item, larger(item, get_number(item, acc), get_number(item, in)), acc);
}

// A run of kRun codes takes whole bytes.
void max_array(const Item& item, std::size_t len, std::uint8_t* acc, const std::uint8_t* in) {
  std::uint32_t mine[kRun], other[kRun];
  for (std::size_t first = 0; first < len; first += kRun) {
    const std::size_t count = std::min(kRun, len - first), at = first * item.bits / 8;
    unpack(acc + at, count, item.bits, mine);
    unpack(in + at, count, item.bits, other);
    for (std::size_t i = 0; i < count; ++i) mine[i] = larger(item, mine[i], other[i]);
    pack(mine, count, item.bits, acc + at);
  }
}

void max_of_all(const Checked& program, std::size_t n, std::uint8_t* acc, const std::uint8_t* in) {
  std::size_t at = program.counts ? kCountBytes : 0;
  for (const Item& item : program.items) {
    if (!item.once && !item.table) continue;
    const std::size_t each = item_bytes(item, 1), all = item.once ? each : table_bytes(item, program, n);
    for (const std::size_t end = at + all; at < end; at += each) max_numbers(item, acc + at, in + at);
  }
  const std::size_t length = program.block == 0 ? n : program.block;
  std::size_t first = 0;
  do {
    const std::size_t len = std::min(length, n - first);
    if (len == 0 && program.block != 0) break;
    for (const Item& item : program.items) {
      if (!item.in_block()) continue;
      if (item.array)
        max_array(item, len, acc + at, in + at);
      else
        max_numbers(item, acc + at, in + at);
      at += item_bytes(item, len);
    }
    first += len;
  } while (first < n);
}

}  // namespace

Result<Combined> combine(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                         Bytes acc, ByteView in, float* residual_out, const int_fields::Kernels& with) {
  const Checked& program = of.program;
  if (program.sends_values) return combine_values(of, name, call, n, acc, in, residual_out);
  if (program.adds()) {
    TITHE_TRY(int_fields::add(with, sum_form(of, name, call.settings, n), call, acc, in));
    return Combined{};
  }
  if (program.law != Law::kMax)
    return Status(Code::kUnsupported, fmt::format("{}: payloads of this phase cannot be combined", name));
  TITHE_TRY(codec::check_size(name, in.size(), acc.size()));
  TITHE_TRY(check(of, name, call, n, in));
  if (program.counts) TITHE_TRY(int_fields::count({name, n, 0, max_ranks(of, call.settings)}, call, acc, in));
  max_of_all(program, n, acc.data(), in.data());
  return Combined{};
}

}  // namespace tithe::lang
