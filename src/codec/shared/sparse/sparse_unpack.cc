// SPDX-License-Identifier: Apache-2.0
// Reads and checks packed payloads.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "codec/shared/sparse/sparse_packed.h"

namespace tithe::sparse {
namespace {

// Up to 57 bits from bit `at` on; zeros past the end.
std::uint64_t peek(const std::uint8_t* p, const std::uint8_t* end, std::size_t at) {
  const std::uint8_t* from = p + at / 8;
  std::uint64_t word = 0;
  if (end - from >= 8)
    std::memcpy(&word, from, 8);
  else if (from < end)
    std::memcpy(&word, from, static_cast<std::size_t>(end - from));
  return word >> at % 8;
}

// The first bit from `at` on that is 1; a bit past the end if there is none.
std::size_t next_one(const std::uint8_t* p, const std::uint8_t* end, std::size_t at) {
  std::uint64_t word = peek(p, end, at);
  while ((word & 0xffffffffU) == 0 && p + at / 8 < end) {
    at += 32;
    word = peek(p, end, at);
  }
  return at + static_cast<std::size_t>(std::countr_zero(word | std::uint64_t{1} << 63));
}

}  // namespace

Cursor::Cursor(ByteView payload) : indices_(payload.data() + kHead), end_(payload.data() + payload.size()) {
  remaining_ = wire::get<std::uint32_t>(payload.data());
  const std::uint8_t* values = indices_ + 4 * remaining_;
  if (is_packed(payload)) {
    remaining_ = wire::get<std::uint32_t>(payload.data() + kAtCount);
    form_ = {static_cast<ValueForm>(payload[kAtValues]), static_cast<IndexForm>(payload[kAtIndices])};
    rice_ = payload[kAtRice];
    indices_ = payload.data() + kPackedHead;
    end_ -= array_bytes(form_.values, payload, remaining_);
    values = end_;
  }
  values_ = ValueReader(form_.values, values, remaining_);
  if (remaining_ > 0) read();
}

void Cursor::next() {
  if (--remaining_ > 0) read();
}

void Cursor::read() {
  if (form_.indices == IndexForm::kU32) {
    index_ = wire::get<std::uint32_t>(indices_);
    indices_ += 4;
  } else if (form_.indices == IndexForm::kBitmap) {
    index_ = next_bit();
  } else {
    index_ = next_ + gap();
  }
  next_ = index_ + 1;
  value_ = values_.next();
}

std::uint32_t Cursor::next_bit() {
  bit_ = next_one(indices_, end_, bit_) + 1;
  return static_cast<std::uint32_t>(bit_ - 1);
}

std::uint32_t Cursor::gap() {
  const std::size_t one = next_one(indices_, end_, bit_);
  const std::uint64_t q = one - bit_;
  const std::uint64_t rest = peek(indices_, end_, one + 1) & ((std::uint64_t{1} << rice_) - 1);
  bit_ = one + 1 + rice_;
  return static_cast<std::uint32_t>(q << rice_ | rest);
}

IndexReader::IndexReader(ByteView payload)
    : indices_(payload.data() + kHead),
      end_(payload.data() + payload.size()),
      count_(wire::get<std::uint32_t>(payload.data())) {
  if (!is_packed(payload)) return;
  count_ = wire::get<std::uint32_t>(payload.data() + kAtCount);
  form_ = {static_cast<ValueForm>(payload[kAtValues]), static_cast<IndexForm>(payload[kAtIndices])};
  rice_ = payload[kAtRice];
  indices_ = payload.data() + kPackedHead;
}

std::size_t IndexReader::read(std::span<std::uint32_t> index) {
  index = index.first(std::min(index.size(), count_ - read_));
  if (index.empty()) return 0;
  if (form_.indices == IndexForm::kU32)
    for (std::size_t k = 0; k < index.size(); ++k)
      index[k] = wire::get<std::uint32_t>(indices_ + 4 * (read_ + k));
  else if (form_.indices == IndexForm::kBitmap)
    read_bitmap(index);
  else
    read_gaps(index);
  read_ += index.size();
  return index.size();
}

Unpacker::Unpacker(ByteView payload) : indices_(payload) {
  const ValueForm form = indices_.form().values;
  const std::size_t area = is_packed(payload) ? kPackedHead : kHead;
  const std::size_t bytes = array_bytes(form, payload.subspan(area), count());
  values_ = ValueReader(form, payload.data() + payload.size() - bytes, count());
}

std::size_t Unpacker::read(std::uint32_t* index, float* value) {
  const std::size_t size = indices_.read({index, kMaxPairs});
  if (size > 0) values_.read({value, size});
  return size;
}

// bit_: index of the next unread bit.
void IndexReader::read_bitmap(std::span<std::uint32_t> index) {
  std::uint64_t word = peek(indices_, end_, bit_);
  for (std::size_t k = 0; k < index.size();) {
    if (word == 0) {
      bit_ = bit_ / 8 * 8 + 64;
      word = peek(indices_, end_, bit_);
      continue;
    }
    index[k++] = static_cast<std::uint32_t>(bit_) + static_cast<std::uint32_t>(std::countr_zero(word));
    word &= word - 1;
  }
  bit_ = std::size_t{index.back()} + 1;
}

// Most codes are shorter than a word: one peek then shows both parts of a code.
void IndexReader::read_gaps(std::span<std::uint32_t> index) {
  const std::uint64_t rest = (std::uint64_t{1} << rice_) - 1;
  std::uint32_t expected = expected_;
  std::size_t at = bit_;
  for (std::uint32_t& to : index) {
    std::uint64_t q = 0;
    std::uint64_t word = peek(indices_, end_, at);
    while ((word & 0xffffffffU) == 0) {  // a one follows: the payload was checked
      q += 32;
      at += 32;
      word = peek(indices_, end_, at);
    }
    const auto zeros = static_cast<unsigned>(std::countr_zero(word));
    at += zeros + 1;
    word = zeros + 1 + rice_ <= 57 ? word >> (zeros + 1) : peek(indices_, end_, at);
    at += rice_;
    const std::uint32_t i = expected + static_cast<std::uint32_t>((q + zeros) << rice_ | (word & rest));
    to = i;
    expected = i + 1;
  }
  expected_ = expected;
  bit_ = at;
}

namespace {

// True if u32 indices increase strictly and are below n. The loop has no exit, so the compiler uses vectors.
bool increase_below(std::size_t n, const std::uint8_t* indices, std::size_t count) {
  const auto at = [&](std::size_t j) { return wire::get<std::uint32_t>(indices + 4 * j); };
  std::uint32_t unsorted = 0;
  for (std::size_t j = 1; j < count; ++j) unsorted |= at(j - 1) >= at(j);
  return unsorted == 0 && (count == 0 || at(count - 1) < n);
}

// The checks that check_packed and check_indices share.
class PackedCheck {
 public:
  PackedCheck(std::string_view codec, std::size_t n, ByteView payload)
      : codec_(codec), n_(n), payload_(payload) {}

  Status corrupt(const std::string& why) const { return {Code::kCorrupt, std::string(codec_) + ": " + why}; }
  std::size_t count() const { return wire::get<std::uint32_t>(payload_.data() + kAtCount); }
  Form form() const {
    return {static_cast<ValueForm>(payload_[kAtValues]), static_cast<IndexForm>(payload_[kAtIndices])};
  }

  Status head(std::size_t most) const {
    if (payload_.size() < kPackedHead)
      return corrupt("packed payload of " + std::to_string(payload_.size()) + " bytes has no head");
    if (count() > most || count() > n_)
      return corrupt(std::to_string(count()) + " pairs, at most " + std::to_string(most) + " fit " +
                     std::to_string(n_) + " values");
    constexpr auto kLastIndexForm = static_cast<std::uint8_t>(IndexForm::kBitmap);
    if (payload_[kAtValues] > kLastValueForm || payload_[kAtIndices] > kLastIndexForm ||
        payload_[kAtZero] != 0)
      return corrupt("unknown form");
    if (form().plain() || payload_[kAtRice] != rice()) return corrupt("an invalid form");
    return {};
  }

  // Checks the index stream, which ends `behind` bytes before the payload does.
  Status indices(std::size_t behind) const {
    const std::uint8_t* indices = payload_.data() + kPackedHead;
    const std::uint8_t* end = payload_.data() + payload_.size() - behind;
    if (form().indices == IndexForm::kU32) return list(indices, end);
    return form().indices == IndexForm::kBitmap ? bitmap(indices, end) : gaps(indices, end);
  }

 private:
  unsigned rice() const { return form().indices == IndexForm::kDelta ? rice_bits(count(), n_) : 0; }
  Status list(const std::uint8_t* indices, const std::uint8_t* end) const;
  Status bitmap(const std::uint8_t* indices, const std::uint8_t* end) const;
  Status gaps(const std::uint8_t* indices, const std::uint8_t* end) const;

  std::string_view codec_;
  std::size_t n_;
  ByteView payload_;
};

Status PackedCheck::list(const std::uint8_t* indices, const std::uint8_t* end) const {
  if (static_cast<std::size_t>(end - indices) != 4 * count()) return corrupt("wrong length");
  return increase_below(n_, indices, count())
             ? Status()
             : corrupt("indices do not increase below " + std::to_string(n_));
}

Status PackedCheck::bitmap(const std::uint8_t* indices, const std::uint8_t* end) const {
  const auto room = static_cast<std::size_t>(end - indices);
  if (room != index_bytes(IndexForm::kBitmap, count(), n_)) return corrupt("wrong length");
  if (n_ % 8 != 0 && end[-1] >> n_ % 8 != 0) return corrupt("padding bits are not zero");
  std::size_t ones = 0;
  std::size_t k = 0;
  for (; k + 8 <= room; k += 8)
    ones += static_cast<std::size_t>(std::popcount(wire::get<std::uint64_t>(indices + k)));
  for (; k < room; ++k) ones += static_cast<std::size_t>(std::popcount(indices[k]));
  return ones == count() ? Status() : corrupt("the bitmap marks another number of values");
}

// Invariant: `at` bits were read, and the next index is at least `least`. The last byte must be reached, and its
// padding must be 0.
Status PackedCheck::gaps(const std::uint8_t* indices, const std::uint8_t* end) const {
  const auto room = static_cast<std::size_t>(end - indices);
  const std::size_t bits = 8 * room;
  const unsigned b = rice();
  std::size_t at = 0;
  std::uint64_t least = 0;
  for (std::size_t j = 0; j < count(); ++j) {
    const std::size_t one = next_one(indices, end, at);
    const std::uint64_t q = one - at;
    at = one + 1;
    if (at + b > bits) return corrupt("index stream ends early");
    const std::uint64_t gap = q << b | (peek(indices, end, at) & ((std::uint64_t{1} << b) - 1));
    at += b;
    if (q > n_ || least + gap >= n_)
      return corrupt("index of " + std::to_string(n_) + " values out of range");
    least += gap + 1;
  }
  if ((at + 7) / 8 != room) return corrupt("index stream is too long");
  if (at % 8 != 0 && end[-1] >> at % 8 != 0) return corrupt("padding bits are not zero");
  return {};
}

}  // namespace

Status check_packed(std::string_view codec, std::size_t n, std::size_t most, ByteView payload) {
  const PackedCheck check(codec, n, payload);
  TITHE_TRY(check.head(most));
  const ValueForm form = check.form().values;
  const std::size_t values = array_bytes(form, payload.subspan(kPackedHead), check.count());
  if (payload.size() - kPackedHead < values)
    return check.corrupt("too short for " + std::to_string(check.count()) + " values");
  if (!values_hold(form, payload.last(values), check.count())) return check.corrupt("an invalid code");
  return check.indices(values);
}

Status check_indices(std::string_view codec, std::size_t n, std::size_t most, ByteView payload) {
  TITHE_TRY(check_values(codec, n));
  const PackedCheck check(codec, n, payload);
  if (payload.size() < kHead) return check.corrupt("no count of indices");
  if (is_packed(payload)) {
    TITHE_TRY(check.head(most));
    return check.indices(0);
  }
  const std::size_t count = wire::get<std::uint32_t>(payload.data());
  if (count > most) return check.corrupt("more indices than the ratio allows");
  if (payload.size() != kHead + 4 * count) return check.corrupt("its length does not match its count");
  return increase_below(n, payload.data() + kHead, count) ? Status()
                                                          : check.corrupt("indices do not increase below n");
}

}  // namespace tithe::sparse
