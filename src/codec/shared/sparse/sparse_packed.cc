// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/sparse_packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/shared/sparse/sparse_typical.h"

namespace tithe::sparse {
namespace {

// An upper bound of index_bytes for every count up to `most`.
std::size_t max_index_bytes(IndexForm form, std::size_t most, std::size_t n) {
  if (form == IndexForm::kAuto)
    return std::min({max_index_bytes(IndexForm::kU32, most, n), max_index_bytes(IndexForm::kDelta, most, n),
                     max_index_bytes(IndexForm::kBitmap, most, n)});
  if (form != IndexForm::kDelta || most == 0) return index_bytes(form, most, n);
  // A count takes count (b + 1) + (n >> b) bits. Over all counts up to `most`, the first term is largest at `most`, and
  // the second grows by at most n >> b when b changes.
  const unsigned b = rice_bits(most, n);
  return (most * (b + 1) + 2 * (n >> b)) / 8 + 9;
}

// Writes bits, lowest first.
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

}  // namespace

IndexForm chosen(const Form& form, std::size_t count, std::size_t n) {
  if (form.indices != IndexForm::kAuto) return form.indices;
  IndexForm best = IndexForm::kU32;
  const std::size_t plain_saves = form.values == ValueForm::kF32 ? kPackedHead - kHead : 0;
  std::size_t least = index_bytes(best, count, n);
  for (const IndexForm other : {IndexForm::kBitmap, IndexForm::kDelta}) {
    const std::size_t size = index_bytes(other, count, n) + plain_saves;
    if (size < least) least = size, best = other;
  }
  return best;
}

std::size_t typical(const Form& form, double count, std::size_t n) {
  const auto sent = std::min(n, static_cast<std::size_t>(std::llround(count)));
  if (form.plain()) return bytes(sent);
  return kPackedHead + index_bytes(chosen(form, sent, n), sent, n) + value_bytes(form.values, sent);
}

std::size_t indices_bound(const Form& form, std::size_t most, std::size_t n) {
  return form.plain() ? kHead + 4 * most : kPackedHead + max_index_bytes(form.indices, most, n);
}

std::size_t bound(const Form& form, std::size_t most, std::size_t n) {
  return indices_bound(form, most, n) + value_bytes(form.values, most);
}

// kDelta is a Rice code of the gaps: gap >> b zeros, a one, then the low b bits of the gap.
std::size_t write_indices(const Form& requested, std::size_t n, std::span<const std::uint32_t> index,
                          Bytes out) {
  const std::size_t count = index.size();
  const Form form{requested.values, chosen(requested, count, n)};
  if (form.plain()) {
    wire::put(out.data(), static_cast<std::uint32_t>(count));
    if (count > 0) std::memcpy(out.data() + kHead, index.data(), 4 * count);
    return kHead + 4 * count;
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
    std::fill_n(p, index_bytes(form.indices, count, n), std::uint8_t{0});
    for (const std::uint32_t i : index) p[i / 8] = static_cast<std::uint8_t>(p[i / 8] | 1U << i % 8);
    p += index_bytes(form.indices, count, n);
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
  return static_cast<std::size_t>(p - out.data());
}

std::size_t write(const Form& form, std::size_t n, std::span<const std::uint32_t> index, const float* value,
                  float* residual_out, Bytes out) {
  const std::size_t count = index.size();
  std::uint8_t* const array = out.data() + write_indices(form, n, index, out);
  const std::uint8_t* end = write_values(form.values, {value, count}, array);
  ValueReader sent(form.values, array, count);
  for (std::size_t j = 0; j < count && residual_out && form.values != ValueForm::kF32; ++j)
    residual_out[index[j]] = value[j] - sent.next();
  return static_cast<std::size_t>(end - out.data());
}

std::size_t scratch(const Form& form, std::size_t own_scratch, std::size_t most) {
  return form.plain() ? own_scratch : own_scratch + 64 + bytes(most);
}

Result<Encoded> encode_packed(const Call& call, std::size_t first, const EncodeInput& in,
                              std::size_t own_scratch,
                              Result<Encoded> (*encode_plain)(const Call&, const EncodeInput&, Bytes),
                              Bytes out) {
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
  return Encoded{.bytes = write(form, in.n, {index, count}, value, in.residual_out, out),
                 .finite = done->finite};
}

}  // namespace tithe::sparse
