// SPDX-License-Identifier: Apache-2.0
#include "lang/run/codings.h"

#include <algorithm>
#include <array>

#include "lang/run/fields.h"

namespace tithe::lang {

namespace {

// ---- Codes with a width per code

std::uint8_t* put_widths(std::span<const std::uint32_t> codes, std::span<const std::uint32_t> widths,
                         std::uint8_t* to) {
  std::uint64_t word = 0;
  unsigned held = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    word |= std::uint64_t{codes[i]} << held;
    for (held += widths[i]; held >= 8; held -= 8, word >>= 8) *to++ = static_cast<std::uint8_t>(word);
  }
  if (held > 0) *to++ = static_cast<std::uint8_t>(word);
  return to;
}

std::optional<std::size_t> get_widths(ByteView from, std::span<const std::uint32_t> widths,
                                      std::span<std::uint32_t> codes) {
  std::uint64_t bits = 0;
  for (const std::uint32_t w : widths) bits += w;
  if ((bits + 7) / 8 > from.size()) return {};
  std::uint64_t word = 0;
  unsigned held = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (; held < widths[i]; held += 8) word |= std::uint64_t{from[at++]} << held;
    codes[i] = static_cast<std::uint32_t>(word & ((std::uint64_t{1} << widths[i]) - 1));
    word >>= widths[i];
    held -= widths[i];
  }
  if (word != 0) return {};
  return at;
}

// ---- Trits

using namespace trits;

std::uint32_t byte_of(std::span<const std::uint32_t> codes, std::size_t first) {
  std::uint32_t byte = 0;
  for (std::size_t i = first; i < first + kDigits; ++i) byte = 3 * byte + (i < codes.size() ? codes[i] : 1);
  return byte;
}

std::uint8_t* put_trits(std::span<const std::uint32_t> codes, std::uint8_t* to) {
  std::size_t run = 0;
  for (std::size_t first = 0; first < codes.size(); first += kDigits) {
    const std::uint32_t byte = byte_of(codes, first);
    if (byte == kOnes) {
      ++run;
      continue;
    }
    to = put_run(run, to);
    run = 0;
    *to++ = static_cast<std::uint8_t>(byte);
  }
  return put_run(run, to);
}

std::optional<std::size_t> get_trits(ByteView from, std::span<std::uint32_t> codes) {
  std::size_t at = 0, i = 0;
  bool ends_run = false;  // no kOnes may follow: the run would have included it
  while (i < codes.size()) {
    if (at == from.size()) return {};
    std::uint32_t byte = from[at++];
    const bool ones = byte == kOnes || byte >= kFirstRun;
    if (ones && ends_run) return {};
    ends_run = ones && byte != kLongestRun;
    if (ones) {
      const std::size_t length = kDigits * (byte == kOnes ? 1 : byte - kFirstRun + 2);
      if (i + length >= codes.size() + kDigits) return {};
      for (const std::size_t end = std::min(i + length, codes.size()); i < end; ++i) codes[i] = 1;
      continue;
    }
    std::array<std::uint32_t, kDigits> digits{};
    for (std::size_t k = kDigits; k-- > 0; byte /= 3) digits[k] = byte % 3;
    for (const std::uint32_t digit : digits) {
      if (i < codes.size())
        codes[i++] = digit;
      else if (digit != 1)
        return {};
    }
  }
  return at;
}

// ---- Places

std::uint8_t* put_places(const Item& item, std::span<const std::uint32_t> codes, std::uint8_t* to) {
  const auto count = static_cast<std::size_t>(
      std::count_if(codes.begin(), codes.end(), [](std::uint32_t code) { return code != 0; }));
  for (unsigned k = 0; k < count_bytes(item.full); ++k) *to++ = static_cast<std::uint8_t>(count >> (8 * k));
  const unsigned bits = place_bits(item.full);
  std::uint64_t word = 0;
  unsigned held = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == 0) continue;
    word |= std::uint64_t{i} << held;
    for (held += bits; held >= 8; held -= 8, word >>= 8) *to++ = static_cast<std::uint8_t>(word);
  }
  if (held > 0) *to++ = static_cast<std::uint8_t>(word);
  return to;
}

std::optional<std::size_t> get_places(const Item& item, ByteView from, std::span<std::uint32_t> codes) {
  const std::size_t head = count_bytes(item.full);
  const unsigned bits = place_bits(item.full);
  if (from.size() < head) return {};
  std::size_t count = 0;
  for (std::size_t k = 0; k < head; ++k) count |= std::size_t{from[k]} << (8 * k);
  if (count > codes.size()) return {};
  const std::size_t bytes = (count * bits + 7) / 8;
  const std::uint8_t* at = from.data() + head;
  if (from.size() - head < bytes || !ends_clean(at, count, bits, bytes)) return {};
  std::fill(codes.begin(), codes.end(), 0U);
  std::uint64_t word = 0;
  unsigned held = 0;
  for (std::size_t k = 0, least = 0; k < count; ++k) {
    for (; held < bits; held += 8) word |= std::uint64_t{*at++} << held;
    const std::size_t place = word & ((std::uint64_t{1} << bits) - 1);
    word >>= bits;
    held -= bits;
    if (place >= codes.size() || place < least) return {};
    codes[place] = 1;
    least = place + 1;
  }
  return head + bytes;
}

}  // namespace

std::uint8_t* trits::put_run(std::size_t length, std::uint8_t* to) {
  for (; length >= kLongest; length -= kLongest) *to++ = kLongestRun;
  if (length == 1) *to++ = kOnes;
  if (length > 1) *to++ = static_cast<std::uint8_t>(kFirstRun + length - 2);
  return to;
}

std::uint8_t* put_codes(const Item& item, std::span<const std::uint32_t> codes,
                        std::span<const std::uint32_t> widths, std::uint8_t* to) {
  if (item.coding == Coding::kWidths) return put_widths(codes, widths, to);
  if (item.coding == Coding::kTrits) return put_trits(codes, to);
  if (item.coding == Coding::kPlaces) return put_places(item, codes, to);
  const std::size_t bytes = item_bytes(item, codes.size());
  std::fill_n(to, bytes, std::uint8_t{0});
  pack(codes.data(), codes.size(), item.bits, to);
  return to + bytes;
}

std::optional<std::size_t> get_codes(const Item& item, ByteView from, std::span<const std::uint32_t> widths,
                                     std::span<std::uint32_t> codes) {
  if (item.coding == Coding::kWidths) return get_widths(from, widths, codes);
  if (item.coding == Coding::kTrits) return get_trits(from, codes);
  if (item.coding == Coding::kPlaces) return get_places(item, from, codes);
  const std::size_t bytes = item_bytes(item, codes.size());
  if (from.size() < bytes || !ends_clean(from.data(), codes.size(), item.bits, bytes)) return {};
  unpack(from.data(), codes.size(), item.bits, codes.data());
  return bytes;
}

}  // namespace tithe::lang
