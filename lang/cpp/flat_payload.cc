// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/flat_payload.h"

#include <algorithm>
#include <array>
#include <optional>

#include "lang/front/passes.h"
#include "lang/run/codings.h"

namespace tithe::lang {

namespace {

// ---- Trits: groups of five codes of 2 bits, the first one lowest, and their byte (lang/run/codings.h has the
// definition)

using trits::kDigits, trits::kFirstRun, trits::kLongestRun;
constexpr unsigned kFiveBits = 10;
constexpr unsigned kOnes = 0x155;  // five codes of value 1

constexpr auto kBytes = [] {
  std::array<std::uint8_t, 1U << kFiveBits> bytes{};
  for (unsigned five = 0; five < bytes.size(); ++five) {
    unsigned byte = 0;
    for (unsigned k = 0; k < kDigits; ++k) byte = 3 * byte + (five >> (2 * k) & 3U);
    bytes[five] = static_cast<std::uint8_t>(byte);
  }
  return bytes;
}();
constexpr auto kFives = [] {
  std::array<std::uint16_t, kFirstRun> fives{};
  for (unsigned byte = 0; byte < fives.size(); ++byte) {
    unsigned rest = byte, five = 0;
    for (unsigned k = 0; k < kDigits; ++k, rest /= 3) five = five << 2 | rest % 3;
    fives[byte] = static_cast<std::uint16_t>(five);
  }
  return fives;
}();

std::size_t fives_in(std::size_t len) { return (len + kDigits - 1) / kDigits; }
// The number of bits in a block's last group that belong to values.
unsigned last_bits(std::size_t len) {
  return static_cast<unsigned>(2 * (len - (fives_in(len) - 1) * kDigits));
}

std::uint8_t* put_trits(const std::uint8_t* flat, std::size_t len, std::uint8_t* to) {
  const std::size_t fives = fives_in(len);
  std::size_t run = 0;
  for (std::size_t j = 0; j < fives; ++j) {
    const std::size_t bit = j * kFiveBits;
    unsigned five = flat[bit / 8];
    const bool last = j + 1 == fives;
    if (const unsigned used = last ? last_bits(len) : kFiveBits; bit % 8 + used > 8)
      five |= unsigned{flat[bit / 8 + 1]} << 8;
    five = five >> bit % 8 & ((1U << kFiveBits) - 1);
    if (last) five |= kOnes >> last_bits(len) << last_bits(len);
    const std::uint8_t byte = kBytes[five];
    if (byte == trits::kOnes) {
      ++run;
      continue;
    }
    if (run != 0) to = trits::put_run(run, to);
    run = 0;
    *to++ = byte;
  }
  return trits::put_run(run, to);
}

// Writes groups of five codes one behind the other.
class Fives {
 public:
  Fives(std::uint8_t* to, std::size_t len)
      : to_(to), left_(fives_in(len)), last_(len == 0 ? 0 : last_bits(len)) {}
  std::size_t left() const { return left_; }
  // Returns false if the padding behind the last value is not ones.
  bool add(unsigned five) {
    const unsigned bits = --left_ == 0 ? last_ : kFiveBits;
    if (five >> bits != kOnes >> bits) return false;
    word_ |= (five & ((1U << bits) - 1)) << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8, word_ >>= 8) *to_++ = static_cast<std::uint8_t>(word_);
    if (left_ == 0 && held_ > 0) *to_ = static_cast<std::uint8_t>(word_);
    return true;
  }

 private:
  std::uint8_t* to_;
  std::size_t left_;
  unsigned last_;
  unsigned word_ = 0, held_ = 0;
};

// Returns the number of bytes read.
std::optional<std::size_t> get_trits(ByteView from, std::size_t len, std::uint8_t* flat) {
  Fives fives(flat, len);
  std::size_t at = 0;
  bool ends_run = false;  // no byte of ones may follow: the run would have included it
  while (fives.left() > 0) {
    if (at == from.size()) return {};
    const unsigned byte = from[at++];
    const bool ones = byte == trits::kOnes || byte >= kFirstRun;
    if (ones && ends_run) return {};
    ends_run = ones && byte != kLongestRun;
    if (!ones) {
      if (!fives.add(kFives[byte])) return {};
      continue;
    }
    const std::size_t length = byte == trits::kOnes ? 1 : byte - kFirstRun + 2;
    if (length > fives.left()) return {};
    for (std::size_t k = 0; k < length; ++k) fives.add(kOnes);
  }
  return at;
}

// ---- Payloads

bool is_trits(const Item& item) { return item.coding == Coding::kTrits; }

std::size_t flat_item(const Item& item, std::size_t len) {
  return is_trits(item) ? (2 * len + 7) / 8 : item_bytes(item, len);
}

// Calls of(item, values) for the arrays and numbers of all blocks in order, until it returns false.
template <typename Of>
bool in_order(const Checked& program, std::size_t n, const Of& of) {
  const std::size_t length = program.block == 0 ? std::max<std::size_t>(n, 1) : program.block;
  for (std::size_t first = 0; first < std::max<std::size_t>(n, program.block == 0 ? 1 : 0); first += length)
    for (const Item& item : program.items)
      if (item.in_block() && !of(item, std::min(length, n - first))) return false;
  return true;
}

}  // namespace

Checked flat_program(Checked program) {
  for (Item& item : program.items) {
    if (!is_trits(item)) continue;
    item.coding = Coding::kCodes;
    item.bits = 2;
  }
  return program;
}

std::size_t flat_bytes(const Checked& program, std::size_t n) {
  std::size_t bytes = head_bytes(program, n);
  in_order(program, n, [&](const Item& item, std::size_t len) {
    bytes += flat_item(item, len);
    return true;
  });
  return bytes;
}

std::size_t to_payload(const Checked& program, const std::uint8_t* flat, std::size_t n, std::uint8_t* to) {
  const std::size_t head = head_bytes(program, n);
  std::uint8_t* at = std::copy_n(flat, head, to);
  flat += head;
  in_order(program, n, [&](const Item& item, std::size_t len) {
    at = is_trits(item) ? put_trits(flat, len, at) : std::copy_n(flat, item_bytes(item, len), at);
    flat += flat_item(item, len);
    return true;
  });
  return static_cast<std::size_t>(at - to);
}

bool to_flat(const Checked& program, ByteView payload, std::size_t n, std::uint8_t* flat) {
  const std::size_t head = head_bytes(program, n);
  if (payload.size() < head) return false;
  flat = std::copy_n(payload.data(), head, flat);
  ByteView rest = payload.subspan(head);
  return in_order(program, n,
                  [&](const Item& item, std::size_t len) {
                    std::size_t bytes = item_bytes(item, len);
                    if (is_trits(item)) {
                      const std::optional<std::size_t> took = get_trits(rest, len, flat);
                      if (!took) return false;
                      bytes = *took;
                    } else {
                      if (rest.size() < bytes) return false;
                      std::copy_n(rest.data(), bytes, flat);
                    }
                    rest = rest.subspan(bytes);
                    flat += flat_item(item, len);
                    return true;
                  }) &&
         rest.empty();
}

}  // namespace tithe::lang
