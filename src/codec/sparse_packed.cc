// SPDX-License-Identifier: Apache-2.0
// The packed payloads of sparsifiers. Places are coded as gaps: the zeros between a sent value and the one before
// it. Where values are sent at random places, gaps are geometric, and the Rice code of 2^b near 0.69 of their mean
// is within a few hundredths of a bit of the best prefix code (Rice and Plaunt 1971; Gallager and Van Voorhis 1975).
//
//   gap   = q 2^b + r   is written as q zeros, a one, and the b bits of r; first bit lowest
//
// From about a quarter of the values on a bitmap is as short, and its places need no arithmetic.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "codec/sparse.h"

namespace tithe::sparse {
namespace {

enum Offset : std::size_t {
  kAtCount = 4,
  kAtValues = 8,
  kAtIndices = 9,
  kAtRice = 10,
  kAtZero = 11,
  kPackedHead = 12
};

// b for `count` of n values: a function of what both ends know.
unsigned rice_bits(std::size_t count, std::size_t n) {
  if (count == 0) return 0;
  const std::uint64_t mean = (std::uint64_t{n} - count) * 177 / 256 / count;  // 177/256: ln 2
  return mean == 0 ? 0 : static_cast<unsigned>(std::bit_width(mean)) - 1;
}

// Bytes of the places of `count` of n values; of gaps, the most that they can take.
std::size_t place_bytes(IndexForm form, std::size_t count, std::size_t n) {
  if (form == IndexForm::kU32) return 4 * count;
  if (form == IndexForm::kBitmap) return (n + 7) / 8;
  if (count == 0) return 0;
  const unsigned b = rice_bits(count, n);
  return (count * (b + 1) + ((n - count) >> b) + 7) / 8;
}

// place_bytes for any count up to `most`.
std::size_t most_place_bytes(IndexForm form, std::size_t most, std::size_t n) {
  if (form == IndexForm::kAuto)
    return std::min({most_place_bytes(IndexForm::kU32, most, n), most_place_bytes(IndexForm::kDelta, most, n),
                     most_place_bytes(IndexForm::kBitmap, most, n)});
  if (form != IndexForm::kDelta || most == 0) return place_bytes(form, most, n);
  // count (b + 1) + (n >> b) bits for any count; over count <= most the first term is largest at most, and the
  // second grows by at most n >> b where b steps.
  const unsigned b = rice_bits(most, n);
  return (most * (b + 1) + 2 * (n >> b)) / 8 + 9;
}

// Bits, lowest first, into bytes that are zero.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* out) : out_(out) {}
  void zeros(std::uint64_t count) {
    for (; count >= 32; count -= 32) put(0, 32);
    put(0, static_cast<unsigned>(count));
  }
  void put(std::uint64_t bits, unsigned count) {  // count <= 32
    word_ |= bits << held_;
    held_ += count;
    for (; held_ >= 8; held_ -= 8, word_ >>= 8) *out_++ = static_cast<std::uint8_t>(word_);
  }
  std::uint8_t* finish() {
    if (held_ > 0) *out_++ = static_cast<std::uint8_t>(word_);
    return out_;
  }

 private:
  std::uint8_t* out_;
  std::uint64_t word_ = 0;
  unsigned held_ = 0;
};

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

}  // namespace

IndexForm chosen(const Form& form, std::size_t count, std::size_t n) {
  if (form.indices != IndexForm::kAuto) return form.indices;
  IndexForm best = IndexForm::kU32;
  const std::size_t plain_saves = form.values == ValueForm::kF32 ? kPackedHead - kHead : 0;
  std::size_t least = place_bytes(best, count, n);
  for (const IndexForm other : {IndexForm::kBitmap, IndexForm::kDelta}) {
    const std::size_t size = place_bytes(other, count, n) + plain_saves;
    if (size < least) least = size, best = other;
  }
  return best;
}

std::size_t bound(const Form& form, std::size_t most, std::size_t n) {
  if (form.plain()) return bytes(most);
  return kPackedHead + most_place_bytes(form.indices, most, n) + value_bytes(form.values, most);
}

std::size_t write(const Form& asked, std::size_t n, std::span<const std::uint32_t> index, const float* value,
                  float* left, Bytes out) {
  const std::size_t count = index.size();
  const Form form{asked.values, chosen(asked, count, n)};
  if (form.plain()) {
    wire::put(out.data(), static_cast<std::uint32_t>(count));
    if (count > 0) {
      std::memcpy(out.data() + kHead, index.data(), 4 * count);
      std::memcpy(out.data() + kHead + 4 * count, value, 4 * count);
    }
    return bytes(count);
  }
  const unsigned b = form.indices == IndexForm::kDelta ? rice_bits(count, n) : 0;
  wire::put(out.data(), kPacked);
  wire::put(out.data() + kAtCount, static_cast<std::uint32_t>(count));
  out[kAtValues] = static_cast<std::uint8_t>(form.values);
  out[kAtIndices] = static_cast<std::uint8_t>(form.indices);
  out[kAtRice] = static_cast<std::uint8_t>(b);
  out[kAtZero] = 0;
  std::uint8_t* p = out.data() + kPackedHead;
  if (form.indices == IndexForm::kU32) {
    for (const std::uint32_t i : index) wire::put(p, i), p += 4;
  } else if (form.indices == IndexForm::kBitmap) {
    std::fill_n(p, place_bytes(form.indices, count, n), std::uint8_t{0});
    for (const std::uint32_t i : index) p[i / 8] = static_cast<std::uint8_t>(p[i / 8] | 1U << i % 8);
    p += place_bytes(form.indices, count, n);
  } else {
    BitWriter bits(p);
    std::uint64_t expected = 0;
    for (const std::uint32_t i : index) {
      const std::uint64_t gap = i - expected;
      bits.zeros(gap >> b);
      bits.put(1, 1);
      bits.put(gap & ((std::uint64_t{1} << b) - 1), b);
      expected = std::uint64_t{i} + 1;
    }
    p = bits.finish();
  }
  const std::uint8_t* end = write_values(form.values, {value, count}, p);
  ValueReader sent(form.values, p, count);
  for (std::size_t j = 0; j < count && left && form.values != ValueForm::kF32; ++j)
    left[index[j]] = value[j] - sent.next();
  return static_cast<std::size_t>(end - out.data());
}

std::size_t scratch(const Form& form, std::size_t own_scratch, std::size_t most) {
  return form.plain() ? own_scratch : own_scratch + 64 + bytes(most);
}

Result<Encoded> encode_packed(const Call& call, std::size_t first, const Carry& in, std::size_t own_scratch,
                              Result<Encoded> (*encode_plain)(const Call&, const Carry&, Bytes), Bytes out) {
  const Form form = form_of(call.settings, first);
  const std::size_t own = (own_scratch + 63) / 64 * 64;
  Call plain = call;
  plain.settings.value[first] = plain.settings.value[first + 1] = 0;
  plain.scratch = call.scratch.first(own);
  const Bytes payload = call.scratch.subspan(own);
  Result<Encoded> done = encode_plain(plain, in, payload);
  if (!done.ok()) return done;
  const auto* index = reinterpret_cast<const std::uint32_t*>(payload.data() + kHead);
  const std::size_t count = Pairs(payload).count();
  const auto* value = reinterpret_cast<const float*>(index + count);
  return Encoded{.bytes = write(form, in.n, {index, count}, value, in.left, out), .finite = done->finite};
}

Cursor::Cursor(ByteView payload) : places_(payload.data() + kHead), end_(payload.data() + payload.size()) {
  left_ = wire::get<std::uint32_t>(payload.data());
  const std::uint8_t* values = places_ + 4 * left_;
  if (is_packed(payload)) {
    left_ = wire::get<std::uint32_t>(payload.data() + kAtCount);
    form_ = {static_cast<ValueForm>(payload[kAtValues]), static_cast<IndexForm>(payload[kAtIndices])};
    rice_ = payload[kAtRice];
    places_ = payload.data() + kPackedHead;
    end_ -= array_bytes(form_.values, payload, left_);
    values = end_;
  }
  values_ = ValueReader(form_.values, values, left_);
  if (left_ > 0) read();
}

void Cursor::next() {
  if (--left_ > 0) read();
}

void Cursor::read() {
  if (form_.indices == IndexForm::kU32) {
    index_ = wire::get<std::uint32_t>(places_);
    places_ += 4;
  } else if (form_.indices == IndexForm::kBitmap) {
    index_ = next_bit();
  } else {
    index_ = next_ + gap();
  }
  next_ = index_ + 1;
  value_ = values_.next();
}

std::uint32_t Cursor::next_bit() {
  std::uint64_t word = peek(places_, end_, bit_);
  while ((word & 0xffffffffU) == 0 && places_ + bit_ / 8 < end_) {
    bit_ += 32;
    word = peek(places_, end_, bit_);
  }
  bit_ += static_cast<unsigned>(std::countr_zero(word | std::uint64_t{1} << 63)) + 1;
  return static_cast<std::uint32_t>(bit_ - 1);
}

std::uint32_t Cursor::gap() {
  std::uint64_t q = 0;
  std::uint64_t word = peek(places_, end_, bit_);
  while ((word & 0xffffffffU) == 0 && places_ + bit_ / 8 < end_) {
    q += 32;
    bit_ += 32;
    word = peek(places_, end_, bit_);
  }
  const auto zeros = static_cast<unsigned>(std::countr_zero(word | std::uint64_t{1} << 63));
  q += zeros;
  bit_ += zeros + 1;
  const std::uint64_t rest = peek(places_, end_, bit_) & ((std::uint64_t{1} << rice_) - 1);
  bit_ += rice_;
  return static_cast<std::uint32_t>(q << rice_ | rest);
}

Unpacker::Unpacker(ByteView payload)
    : places_(payload.data() + kHead), end_(payload.data() + payload.size()) {
  count_ = wire::get<std::uint32_t>(payload.data());
  values_ = places_ + 4 * count_;
  reader_ = ValueReader(form_.values, values_, count_);
  if (!is_packed(payload)) return;
  count_ = wire::get<std::uint32_t>(payload.data() + kAtCount);
  form_ = {static_cast<ValueForm>(payload[kAtValues]), static_cast<IndexForm>(payload[kAtIndices])};
  rice_ = payload[kAtRice];
  places_ = payload.data() + kPackedHead;
  values_ = end_ - array_bytes(form_.values, payload, count_);
  reader_ = ValueReader(form_.values, values_, count_);
}

std::size_t Unpacker::read(std::uint32_t* index, float* value) {
  const std::size_t size = std::min(kMost, count_ - read_);
  if (size == 0) return 0;
  if (form_.indices == IndexForm::kU32)
    for (std::size_t k = 0; k < size; ++k) index[k] = wire::get<std::uint32_t>(places_ + 4 * (read_ + k));
  else if (form_.indices == IndexForm::kBitmap)
    read_bitmap(index, size);
  else
    read_gaps(index, size);
  reader_.read({value, size});
  read_ += size;
  return size;
}

// bit_ is the place that the next word begins with, less what of it was read.
void Unpacker::read_bitmap(std::uint32_t* index, std::size_t size) {
  std::uint64_t word = peek(places_, values_, bit_);
  for (std::size_t k = 0; k < size;) {
    if (word == 0) {
      bit_ = bit_ / 8 * 8 + 64;
      word = peek(places_, values_, bit_);
      continue;
    }
    index[k++] = static_cast<std::uint32_t>(bit_) + static_cast<std::uint32_t>(std::countr_zero(word));
    word &= word - 1;
  }
  bit_ = std::size_t{index[size - 1]} + 1;
}

// Most codes are shorter than a word, so that one look shows both of a code's parts.
void Unpacker::read_gaps(std::uint32_t* index, std::size_t size) {
  const std::uint64_t rest = (std::uint64_t{1} << rice_) - 1;
  std::uint32_t expected = expected_;
  std::size_t at = bit_;
  for (std::size_t k = 0; k < size; ++k) {
    std::uint64_t q = 0;
    std::uint64_t word = peek(places_, end_, at);
    while ((word & 0xffffffffU) == 0) {  // a one follows: the payload was checked
      q += 32;
      at += 32;
      word = peek(places_, end_, at);
    }
    const auto zeros = static_cast<unsigned>(std::countr_zero(word));
    at += zeros + 1;
    word = zeros + 1 + rice_ <= 57 ? word >> (zeros + 1) : peek(places_, end_, at);
    at += rice_;
    const std::uint32_t i = expected + static_cast<std::uint32_t>((q + zeros) << rice_ | (word & rest));
    index[k] = i;
    expected = i + 1;
  }
  expected_ = expected;
  bit_ = at;
}

Status check_packed(std::string_view codec, std::size_t n, std::size_t most, ByteView payload) {
  const auto corrupt = [&](const std::string& why) {
    return Status(Code::kCorrupt, std::string(codec) + ": " + why);
  };
  if (payload.size() < kPackedHead)
    return corrupt("packed payload of " + std::to_string(payload.size()) + " bytes has no head");
  const std::size_t count = wire::get<std::uint32_t>(payload.data() + kAtCount);
  if (count > most || count > n)
    return corrupt(std::to_string(count) + " pairs, at most " + std::to_string(most) + " fit " +
                   std::to_string(n) + " values");
  constexpr auto kLastIndexForm = static_cast<std::uint8_t>(IndexForm::kBitmap);
  if (payload[kAtValues] > kLastValueForm || payload[kAtIndices] > kLastIndexForm || payload[kAtZero] != 0)
    return corrupt("unknown form");
  const Form form{static_cast<ValueForm>(payload[kAtValues]), static_cast<IndexForm>(payload[kAtIndices])};
  const unsigned b = form.indices == IndexForm::kDelta ? rice_bits(count, n) : 0;
  if (form.plain() || payload[kAtRice] != b) return corrupt("a form that no writer chooses");
  const std::size_t values = array_bytes(form.values, payload.subspan(kPackedHead), count);
  if (payload.size() - kPackedHead < values)
    return corrupt("too short for " + std::to_string(count) + " values");
  const std::uint8_t* places = payload.data() + kPackedHead;
  const std::uint8_t* end = payload.data() + payload.size() - values;
  if (!values_hold(form.values, payload.last(values), count)) return corrupt("a code that no writer writes");
  const auto room = static_cast<std::size_t>(end - places);
  if (form.indices == IndexForm::kBitmap) {
    if (room != place_bytes(form.indices, count, n)) return corrupt("wrong length");
    if (n % 8 != 0 && end[-1] >> n % 8 != 0) return corrupt("padding bits are not zero");
    std::size_t ones = 0;
    std::size_t k = 0;
    for (; k + 8 <= room; k += 8)
      ones += static_cast<std::size_t>(std::popcount(wire::get<std::uint64_t>(places + k)));
    for (; k < room; ++k) ones += static_cast<std::size_t>(std::popcount(places[k]));
    return ones == count ? Status() : corrupt("the bitmap names another number of values");
  }
  if (form.indices == IndexForm::kU32) {
    if (room != 4 * count) return corrupt("wrong length");
    std::uint64_t least = 0;
    for (std::size_t j = 0; j < count; ++j) {
      const std::uint32_t i = wire::get<std::uint32_t>(places + 4 * j);
      if (i < least || i >= n) return corrupt("indices do not increase below " + std::to_string(n));
      least = std::uint64_t{i} + 1;
    }
    return {};
  }
  const std::size_t bits = 8 * room;
  std::size_t at = 0;
  std::uint64_t least = 0;
  for (std::size_t j = 0; j < count; ++j) {
    std::uint64_t q = 0;
    std::uint64_t word = peek(places, end, at);
    while ((word & 0xffffffffU) == 0 && at < bits) {
      q += 32;
      at += 32;
      word = peek(places, end, at);
    }
    if (at >= bits) return corrupt("index stream ends early");
    const auto zeros = static_cast<unsigned>(std::countr_zero(word));
    q += zeros;
    at += zeros + 1;
    if (at + b > bits) return corrupt("index stream ends early");
    const std::uint64_t gap = q << b | (peek(places, end, at) & ((std::uint64_t{1} << b) - 1));
    at += b;
    if (q > n || least + gap >= n) return corrupt("index of " + std::to_string(n) + " values out of range");
    least += gap + 1;
  }
  if ((at + 7) / 8 != room) return corrupt("index stream is too long");
  if (at % 8 != 0 && end[-1] >> at % 8 != 0) return corrupt("padding bits are not zero");
  return {};
}

}  // namespace tithe::sparse
