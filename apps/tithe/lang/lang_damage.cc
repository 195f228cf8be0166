// SPDX-License-Identifier: Apache-2.0
// Generates damaged payloads deterministically: the draws depend only on a counter.
#include "lang_damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/rng.h"
#include "lang/run/fields.h"

namespace tithe::cli {

namespace {

using lang::Checked;
using lang::Coding;
using lang::Item;

constexpr std::uint32_t kTurns = 200;
constexpr std::size_t kScanned = 64;  // bytes at each end of a payload at which every position is tried

// The limits of floats, and values that are not finite.
constexpr std::uint32_t kOdd[] = {0x00000000U, 0x80000000U, 0x00000001U, 0x00800000U, 0x7f7fffffU,
                                  0xff7fffffU, 0x7f000000U, 0x7f800000U, 0xff800000U, 0x7fc00000U};

struct Field {
  const Item* item;
  std::size_t at;
  std::size_t count;  // array: number of codes; number: 0
};

std::vector<std::uint32_t> ends_of(const Item& item) {
  if (item.is_float) return {std::begin(kOdd), std::end(kOdd)};
  const auto most = static_cast<std::uint32_t>((std::uint64_t{1} << item.bits) - 1);
  return {0, 1, most / 2, most / 2 + 1, most - std::min(most, 1U), most};
}

// The fields whose positions follow from n. If payloads vary in length, these are the fields before the first one with
// variable length.
std::vector<Field> fields_of(const Checked& program, std::size_t n) {
  std::vector<Field> fields;
  if (program.sends_pairs || program.sends_values || program.adds() || n == 0) return fields;
  std::size_t at = program.counts ? lang::kCountBytes : 0;
  for (const Item& item : program.items) {
    if (item.once) fields.push_back({&item, at, 0});
    const std::size_t all = item.once ? lang::item_bytes(item, 0) : lang::table_bytes(item, program, n);
    if (item.table && item.coding != Coding::kBytes) {
      fields.push_back({&item, at, 0});
      fields.push_back({&item, at + all - lang::item_bytes(item, 1), 0});
    }
    at += all;
  }
  const std::size_t length = program.block == 0 ? n : program.block, blocks = (n + length - 1) / length;
  const auto block = [&](std::size_t number) {
    std::size_t place = at + number * lang::block_bytes(program, length);
    const std::size_t len = std::min(length, n - number * length);
    for (const Item& item : program.items) {
      if (!item.in_block()) continue;
      if (item.coding != Coding::kCodes) return;
      fields.push_back({&item, place, item.array ? len : 0});
      place += lang::item_bytes(item, len);
    }
  };
  block(0);
  if (blocks > 1 && !program.varies()) block(blocks - 1);
  return fields;
}

void set(Payload& payload, const Field& field, std::uint32_t bits) {
  std::uint8_t* to = &payload[field.at];
  if (field.count == 0) return static_cast<void>(lang::put_number(*field.item, bits, to));
  const std::vector<std::uint32_t> codes(field.count, bits);
  lang::pack(codes.data(), codes.size(), field.item->bits, to);
}

bool fits(const Payload& payload, const Field& field) {
  return field.at + lang::item_bytes(*field.item, std::max<std::size_t>(field.count, 1)) <= payload.size();
}

std::string text(const Field& field, std::uint32_t bits) {
  const std::string value =
      field.item->is_float ? fmt::format("{:.9g}", std::bit_cast<float>(bits)) : fmt::format("{}", bits);
  return fmt::format("{}{} is {}", field.count == 0 ? "" : "every ", field.item->name, value);
}

}  // namespace

// The damages: random bits and lengths, random and constant bytes, unusual numbers at the payload's offsets, and the
// ends of each field's range, alone and together.
void each_damage(const Checked& program, std::size_t n, const Payload& good,
                 const std::function<void(const Payload&, const std::string&)>& each) {
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
    const auto draw = [&](std::uint32_t k) { return draw32(turn, k); };
    Payload bad = good;
    if (turn % 4 == 0) bad.resize(draw(0) % (good.size() + 3));
    for (std::uint32_t k = 0; k <= turn % 3 && !bad.empty(); ++k)
      bad[draw(1 + 2 * k) % bad.size()] ^= static_cast<std::uint8_t>(1U << draw(2 + 2 * k) % 8);
    each(bad, fmt::format("{} flipped bits", 1 + turn % 3));
    for (std::size_t k = turn % 2 * lang::once_bytes(program); k < bad.size(); ++k)
      bad[k] = static_cast<std::uint8_t>(draw32(turn + kTurns, static_cast<std::uint32_t>(k)));
    each(bad, "random bytes");
  }
  for (const int byte : {0x00, 0xff, 0x7f, 0x80}) {
    Payload bad(good.size(), static_cast<std::uint8_t>(byte));
    each(bad, fmt::format("every byte is {}", byte));
    const std::size_t head = std::min(lang::once_bytes(program), good.size());
    std::copy_n(good.begin(), head, bad.begin());
    each(bad, fmt::format("every byte of the blocks is {}", byte));
  }
  for (std::size_t at = 0; at + 4 <= good.size(); ++at) {
    if (at == kScanned && good.size() > 2 * kScanned) at = good.size() - kScanned;
    for (const std::uint32_t odd : kOdd) {
      Payload bad = good;
      std::memcpy(&bad[at], &odd, 4);
      each(bad, fmt::format("bytes {} to {} have the value {:.9g}", at, at + 3, std::bit_cast<float>(odd)));
    }
  }
  const std::vector<Field> fields = fields_of(program, n);
  for (const Field& field : fields)
    for (const std::uint32_t bits : ends_of(*field.item)) {
      if (!fits(good, field)) continue;
      Payload bad = good;
      set(bad, field, bits);
      each(bad, text(field, bits));
    }
  for (std::uint32_t turn = 0; turn < kTurns && fields.size() > 1; ++turn) {
    Payload bad = good;
    std::string what;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      const std::uint32_t dice = draw32(turn + 2 * kTurns, static_cast<std::uint32_t>(f));
      if (dice % 2 == 0 || !fits(bad, fields[f])) continue;
      const std::vector<std::uint32_t> ends = ends_of(*fields[f].item);
      const std::uint32_t bits = ends[dice / 2 % ends.size()];
      set(bad, fields[f], bits);
      what += (what.empty() ? "" : ", ") + text(fields[f], bits);
    }
    each(bad, what);
  }
}

}  // namespace tithe::cli
