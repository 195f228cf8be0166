// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/shared/int_sum/int_fields.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/int_sum/int_fields_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::int_fields::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

HWY_INLINE VW load_words(const std::uint8_t* p) {
  return hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(p));
}

// `above` collects the bits above the last field of every word, which must be 0.
std::uint32_t largest(const std::uint8_t* HWY_RESTRICT words, std::size_t count, unsigned bits) {
  const VW mask = hn::Set(Words(), (1U << bits) - 1);
  VW most = hn::Zero(Words()), above = hn::Zero(Words());
  std::size_t w = 0;
  for (; w < whole(count); w += lanes()) {
    VW word = load_words(words + 4 * w);
    for (unsigned k = 0; k < fields(bits); ++k) {
      most = hn::Max(most, hn::And(word, mask));
      word = hn::ShiftRightSame(word, static_cast<int>(bits));
    }
    above = hn::Or(above, word);
  }
  if (!hn::AllTrue(Words(), hn::Eq(above, hn::Zero(Words())))) return ~0U;
  std::uint32_t found = hn::GetLane(hn::MaxOfLanes(Words(), most));
  for (; w < count; ++w) found = std::max(found, largest_of(wire::get<std::uint32_t>(words + 4 * w), bits));
  return found;
}

void add(std::uint8_t* HWY_RESTRICT acc, const std::uint8_t* HWY_RESTRICT in, std::size_t count) {
  std::size_t w = 0;
  for (; w < whole(count); w += lanes())
    hn::StoreU(hn::Add(load_words(acc + 4 * w), load_words(in + 4 * w)), Words(),
               reinterpret_cast<std::uint32_t*>(acc + 4 * w));
  for (; w < count; ++w)
    wire::put(acc + 4 * w, wire::get<std::uint32_t>(acc + 4 * w) + wire::get<std::uint32_t>(in + 4 * w));
}

// Rows of 16 integers, one after another.
class Row {
 public:
  HWY_INLINE Row(std::size_t first, unsigned bits)
      : bits_(static_cast<int>(bits)),
        word_(FieldOffset(first, bits).byte),
        shift_(static_cast<int>(FieldOffset(first, bits).shift)) {}
  HWY_INLINE void next() {
    shift_ += bits_;
    if (shift_ + bits_ <= 32) return;
    shift_ = 0;
    word_ += 4 * kRow;
  }
  HWY_INLINE std::size_t byte(std::size_t j) const { return word_ + 4 * j; }
  HWY_INLINE int shift() const { return shift_; }

 private:
  int bits_;
  std::size_t word_;
  int shift_;
};

HWY_INLINE std::size_t rows(std::size_t count) { return whole(kRow) == 0 ? 0 : count / kRow * kRow; }

void pack(const std::uint32_t* HWY_RESTRICT numbers, std::size_t first, std::size_t count, unsigned bits,
          std::uint8_t* HWY_RESTRICT payload) {
  Row row(first, bits);
  std::size_t i = 0;
  for (; i < rows(count); i += kRow, row.next())
    for (std::size_t j = 0; j < kRow; j += lanes()) {
      VW word = hn::ShiftLeftSame(hn::LoadU(Words(), numbers + i + j), row.shift());
      if (row.shift() != 0) word = hn::Or(word, load_words(payload + row.byte(j)));
      hn::StoreU(word, Words(), reinterpret_cast<std::uint32_t*>(payload + row.byte(j)));
    }
  for (; i < count; ++i) put(payload, first + i, bits, numbers[i]);
}

void unpack(const std::uint8_t* HWY_RESTRICT payload, std::size_t first, std::size_t count, unsigned bits,
            std::uint32_t* HWY_RESTRICT numbers) {
  const VW mask = hn::Set(Words(), (1U << bits) - 1);
  Row row(first, bits);
  std::size_t i = 0;
  for (; i < rows(count); i += kRow, row.next())
    for (std::size_t j = 0; j < kRow; j += lanes()) {
      const VW word = load_words(payload + row.byte(j));
      hn::StoreU(hn::And(hn::ShiftRightSame(word, row.shift()), mask), Words(), numbers + i + j);
    }
  for (; i < count; ++i) numbers[i] = get(payload, first + i, bits);
}

}  // namespace
}  // namespace tithe::int_fields::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::int_fields {
TITHE_KERNELS(const Kernels kSimd, largest, add, pack, unpack);
}  // namespace tithe::int_fields
#endif
