// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payload that all sparsifiers share: the values that are sent, each with its index.
//
//   plain     u32 count | u32 index[count] | f32 value[count]
//   packed    u32 0xffffffff | u32 count | u8 values | u8 indices | u8 rice | u8 0 | index stream | value array
//             where another Form than {fp32, u32} is chosen (docs/reference/format_sparse.md, "Sparse payloads")
//
// All numbers are little-endian and unaligned.
//
//   sorted    indices strictly increase and lie below n: a decoder makes one pass and meets no index twice
//   merged    out[i] = (base[i] + p0[i] + p1[i] + ...) / divide in the payloads' order; a payload that does not
//             name index i adds nothing to out[i]
//   checked   decode writes nothing unless every payload passed check()
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "codec/shared/sparse/sparse_values.h"
#include "tithe/seam/codec.h"

namespace tithe::sparse {

inline constexpr std::size_t kHead = 4;
inline constexpr std::uint32_t kPacked = 0xffffffffU;   // instead of a plain payload's count
inline constexpr std::size_t kMaxValues = 0xfffffffeU;  // indices are u32, and no count may equal kPacked

constexpr std::size_t bytes(std::size_t count) { return kHead + 8 * count; }

// How indices and values are written: the parameters `values` and `indices`, which sparsifiers append to their own.
//   u32     the index itself
//   delta   Rice-coded gaps between indices: about 8 bits per index when 1 % of the values are sent
//   bitmap  one bit per value of the tensor: as short as delta when more than a quarter is sent, and faster
//   auto    the shortest of the three, chosen from count and n before anything is written; the payload names it
enum class IndexForm : std::uint8_t { kU32, kDelta, kBitmap, kAuto };
struct Form {
  ValueForm values = ValueForm::kF32;
  IndexForm indices = IndexForm::kU32;
  bool plain() const { return values == ValueForm::kF32 && indices == IndexForm::kU32; }
};
inline constexpr std::string_view kValueForms[] = {"fp32", "bf16",       "fp16", "8bit",
                                                   "4bit", "inceptionn", "2bit"};
inline constexpr std::string_view kIndexForms[] = {"u32", "delta", "bitmap", "auto"};
inline constexpr ParamSpec kValuesParam = {
    "values",   0, 0, kLastValueForm, "encoding of a sent value; its rounding error stays in the residual",
    kValueForms};
// For payloads that add up as arrays and so must have equal sizes.
inline constexpr ParamSpec kFixedValuesParam = {
    "values", 0, 0, kLastFixedForm, kValuesParam.doc, std::span(kValueForms).first<kLastFixedForm + 1>()};
inline constexpr ParamSpec kIndicesParam = {
    "indices",  0, 0, 3, "lossless encoding of its index; delta: Rice-coded gaps, auto: the shortest",
    kIndexForms};
// The Form in `s`: parameter `first` is `values`, parameter `first + 1` is `indices`.
inline Form form_of(const Settings& s, std::size_t first) {
  return {static_cast<ValueForm>(static_cast<int>(s[first])),
          static_cast<IndexForm>(static_cast<int>(s[first + 1]))};
}

// The index form of a payload with `count` of n values: the choice of kAuto, or form.indices itself.
IndexForm chosen(const Form& form, std::size_t count, std::size_t n);

// The most bytes that a payload of at most `most` of n values takes.
std::size_t bound(const Form& form, std::size_t most, std::size_t n);

// max(1, ceil(ratio * n)), at most n.
std::size_t count_of(double ratio, std::size_t n);

// The bits of |v|: they are ordered as the magnitudes are, with Inf above every finite value and NaN above Inf.
inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }
inline constexpr std::uint32_t kFirstNonFinite = 0x7f800000U;  // magnitudes from here on are Inf and NaN

// Random access to a plain payload that passed check().
class Pairs {
 public:
  explicit Pairs(ByteView payload) : p_(payload.data()), count_(wire::get<std::uint32_t>(p_)) {}
  std::size_t count() const { return count_; }
  std::uint32_t index(std::size_t j) const { return wire::get<std::uint32_t>(p_ + kHead + 4 * j); }
  float value(std::size_t j) const { return wire::get<float>(p_ + kHead + 4 * (count_ + j)); }
  const std::uint8_t* indices() const { return p_ + kHead; }
  const std::uint8_t* values() const { return p_ + kHead + 4 * std::size_t{count_}; }

 private:
  const std::uint8_t* p_;
  std::uint32_t count_;
};

// Writes the payload of pairs in increasing order of index. Unless residual_out is nullptr, the form's rounding error
// of a value is written to residual_out[index], which must hold +0 before. Returns the payload's bytes.
std::size_t write(const Form& form, std::size_t n, std::span<const std::uint32_t> index, const float* value,
                  float* residual_out, Bytes out);

// Indices without values; the values are sent in another payload.
//
//   plain     u32 count | u32 index[count]
//   packed    as above without the value array, for a Form other than {fp32, u32}; `values` names the form in which the
//             values will be sent
std::size_t indices_bound(const Form& form, std::size_t most, std::size_t n);
std::size_t write_indices(const Form& form, std::size_t n, std::span<const std::uint32_t> index, Bytes out);
Status check_indices(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// The fast encoders write plain payloads only. For another form, encode_packed lets encode_plain write into the end of
// the scratch and packs the result. `first` as in form_of; own_scratch: the bytes that encode_plain needs.
std::size_t scratch(const Form& form, std::size_t own_scratch, std::size_t most);
Result<Encoded> encode_packed(const Call& call, std::size_t first, const EncodeInput& in,
                              std::size_t own_scratch,
                              Result<Encoded> (*encode_plain)(const Call&, const EncodeInput&, Bytes),
                              Bytes out);

inline bool is_packed(ByteView payload) { return wire::get<std::uint32_t>(payload.data()) == kPacked; }

// Reads a checked plain or packed payload, pair by pair.
class Cursor {
 public:
  explicit Cursor(ByteView payload);
  bool done() const { return remaining_ == 0; }
  std::uint32_t index() const { return index_; }
  float value() const { return value_; }
  void next();

 private:
  void read();
  std::uint32_t gap();
  std::uint32_t next_bit();

  const std::uint8_t* indices_;
  ValueReader values_;
  const std::uint8_t* end_;
  std::size_t remaining_;
  std::size_t bit_ = 0;
  Form form_;
  unsigned rice_ = 0;
  std::uint32_t index_ = 0;
  std::uint32_t next_ = 0;  // lower bound of the next index
  float value_ = 0;
};

// Reads the indices of a checked payload, in batches.
class IndexReader {
 public:
  explicit IndexReader(ByteView payload);
  std::size_t count() const { return count_; }
  Form form() const { return form_; }
  // Writes the next indices and returns how many; fewer than index.size() only at the end.
  std::size_t read(std::span<std::uint32_t> index);

 private:
  void read_bitmap(std::span<std::uint32_t> index);
  void read_gaps(std::span<std::uint32_t> index);

  const std::uint8_t* indices_;
  const std::uint8_t* end_;  // end of the payload
  std::size_t count_;
  std::size_t read_ = 0;
  std::size_t bit_ = 0;
  Form form_;
  unsigned rice_ = 0;
  std::uint32_t expected_ = 0;  // last index read + 1
};

// Reads the same pairs as Cursor, faster, in batches.
class Unpacker {
 public:
  static constexpr std::size_t kMaxPairs = kValueBlock;
  explicit Unpacker(ByteView payload);
  std::size_t count() const { return indices_.count(); }
  // Writes the next pairs, at most kMaxPairs, and returns how many; 0 at the end.
  std::size_t read(std::uint32_t* index, float* value);

 private:
  IndexReader indices_;
  ValueReader values_;
};

// Impl::clear_sent: _ref reads pair by pair, _simd in batches.
void clear_sent_ref(ByteView payload, float* values);
void clear_sent_simd(ByteView payload, float* values);

// kCorrupt unless `payload` holds at most `most` pairs of n values, in order.
Status check(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// The same for a packed payload; check() calls it.
Status check_packed(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// kUnsupported if n is above kMaxValues.
Status check_values(std::string_view codec, std::size_t n);

// Merges checked payloads. decode_ref takes one payload after another, decode_simd one block of the output after
// another. Both add to each value in the payloads' order, so the bits are equal.
void decode_ref(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
void decode_simd(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::sparse
