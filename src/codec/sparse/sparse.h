// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payload that all sparsifiers share: some of the values, each with its place.
//
//   plain     u32 count | u32 index[count] | f32 value[count]
//   packed    u32 0xffffffff | u32 count | u8 values | u8 indices | u8 rice | u8 0 | index stream | value array
//             where another Form than {fp32, u32} is chosen (docs/format.md, "Sparse payloads")
//
// All little-endian, no alignment.
//
//   sorted    indices strictly increase and lie below n: one pass over the output, no value twice
//   merged    out[i] = (base[i] + p0[i] + p1[i] + ...) / divide in the payloads' order; an index that
//             a payload does not name adds nothing to the value there
//   checked   decode writes nothing unless every payload passed check()
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "codec/sparse/sparse_values.h"
#include "tithe/codec.h"

namespace tithe::sparse {

inline constexpr std::size_t kHead = 4;
inline constexpr std::uint32_t kPacked = 0xffffffffU;   // in the place of a plain payload's count
inline constexpr std::size_t kMaxValues = 0xfffffffeU;  // places are u32, and no count may look like kPacked

constexpr std::size_t bytes(std::size_t count) { return kHead + 8 * count; }

// How the pairs are written. The choices are those of kFormParams, which every sparsifier appends to its own.
//   u32     the index
//   delta   Rice-coded gaps between the indices: about 8 bits at 1 %
//   bitmap  one bit per value of the tensor: as short as delta where more than a quarter is sent, and quicker
//   auto    the shortest of the three, chosen by count and n before anything is written; the payload says which it is
enum class IndexForm : std::uint8_t { kU32, kDelta, kBitmap, kAuto };
struct Form {
  ValueForm values = ValueForm::kF32;
  IndexForm indices = IndexForm::kU32;
  bool plain() const { return values == ValueForm::kF32 && indices == IndexForm::kU32; }
};
inline constexpr std::string_view kValueForms[] = {"fp32", "bf16", "fp16", "8bit", "4bit", "inceptionn"};
inline constexpr std::string_view kIndexForms[] = {"u32", "delta", "bitmap", "auto"};
inline constexpr ParamSpec kValuesParam = {
    "values",
    0,
    0,
    kLastValueForm,
    "how a sent value is written; what this rounds off stays in the residual",
    kValueForms};
// For payloads that add up as arrays, and so have one size.
inline constexpr ParamSpec kFixedValuesParam = {
    "values", 0, 0, kLastFixedForm, kValuesParam.doc, std::span(kValueForms).first<kLastFixedForm + 1>()};
inline constexpr ParamSpec kIndicesParam = {
    "indices",  0, 0, 3, "how its place is written, exactly; delta: Rice-coded gaps, auto: the shortest",
    kIndexForms};
// The Form of settings whose values and indices stand at `first` and `first + 1`.
inline Form form_of(const Settings& s, std::size_t first) {
  return {static_cast<ValueForm>(static_cast<int>(s[first])),
          static_cast<IndexForm>(static_cast<int>(s[first + 1]))};
}

// The form that indices=auto stands for, where `count` of n values are sent; any other stands for itself.
IndexForm chosen(const Form& form, std::size_t count, std::size_t n);

// Bytes of a payload of at most `most` of n values: the worst case.
std::size_t bound(const Form& form, std::size_t most, std::size_t n);

// How many values `ratio` of n are: at least one, at most all.
std::size_t count_of(double ratio, std::size_t n);

// |v| as an integer: same order as the magnitudes, NaN above Inf above every finite value.
inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }
inline constexpr std::uint32_t kFirstNonFinite = 0x7f800000U;  // magnitudes from here on are Inf and NaN

// A plain payload that passed check(), to be read at any place.
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

// Writes the payload of a list of pairs in increasing order. What the form rounds off a value goes to
// left[index] (unless left is nullptr), which must hold +0 there. Returns the payload's bytes.
std::size_t write(const Form& form, std::size_t n, std::span<const std::uint32_t> index, const float* value,
                  float* left, Bytes out);

// The places alone, for values that travel in a payload of their own:
//
//   plain     u32 count | u32 index[count]
//   packed    as above but no value array, in another Form than {fp32, u32}; `values` says how they will be written
std::size_t places_bound(const Form& form, std::size_t most, std::size_t n);
std::size_t write_places(const Form& form, std::size_t n, std::span<const std::uint32_t> index, Bytes out);
Status check_places(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// The fast forms write plain payloads. For another form they write into the end of their scratch, and this packs it:
// `first` is where the form stands in the settings, own_scratch what the plain encode needs.
std::size_t scratch(const Form& form, std::size_t own_scratch, std::size_t most);
Result<Encoded> encode_packed(const Call& call, std::size_t first, const Carry& in, std::size_t own_scratch,
                              Result<Encoded> (*encode_plain)(const Call&, const Carry&, Bytes), Bytes out);

inline bool is_packed(ByteView payload) { return wire::get<std::uint32_t>(payload.data()) == kPacked; }

// Reads a checked payload of either kind, pair by pair.
class Cursor {
 public:
  explicit Cursor(ByteView payload);
  bool done() const { return left_ == 0; }
  std::uint32_t index() const { return index_; }
  float value() const { return value_; }
  void next();

 private:
  void read();
  std::uint32_t gap();
  std::uint32_t next_bit();

  const std::uint8_t* places_;
  ValueReader values_;
  const std::uint8_t* end_;
  std::size_t left_;
  std::size_t bit_ = 0;
  Form form_;
  unsigned rice_ = 0;
  std::uint32_t index_ = 0;
  std::uint32_t next_ = 0;  // the least that the next index can be
  float value_ = 0;
};

// The places of a checked payload, a batch at a time.
class PlaceReader {
 public:
  explicit PlaceReader(ByteView payload);
  std::size_t count() const { return count_; }
  Form form() const { return form_; }
  // The next ones; how many: less than there is room for only at the end.
  std::size_t read(std::span<std::uint32_t> index);

 private:
  void read_bitmap(std::span<std::uint32_t> index);
  void read_gaps(std::span<std::uint32_t> index);

  const std::uint8_t* places_;
  const std::uint8_t* end_;  // of the payload
  std::size_t count_;
  std::size_t read_ = 0;
  std::size_t bit_ = 0;
  Form form_;
  unsigned rice_ = 0;
  std::uint32_t expected_ = 0;  // the place after the last one read
};

// Reads as Cursor does, a batch at a time, for those who read much.
class Unpacker {
 public:
  static constexpr std::size_t kMost = kValueBlock;
  explicit Unpacker(ByteView payload);
  std::size_t count() const { return places_.count(); }
  // The next pairs, at most kMost: how many; 0 at the end.
  std::size_t read(std::uint32_t* index, float* value);

 private:
  PlaceReader places_;
  ValueReader values_;
};

// Impl::clear_sent, pair by pair and a batch at a time.
void clear_sent_ref(ByteView payload, float* values);
void clear_sent_simd(ByteView payload, float* values);

// Whether `payload` holds at most `most` pairs for n values, in order. kCorrupt otherwise.
Status check(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// The same for a packed payload; check() calls it.
Status check_packed(std::string_view codec, std::size_t n, std::size_t most, ByteView payload);

// kUnsupported where an index could not name every value.
Status check_values(std::string_view codec, std::size_t n);

// Merges checked payloads: the reference payload after payload, the fast form block after block of the output. Both
// add to each value in the payloads' order, so the bits are equal.
void decode_ref(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
void decode_simd(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

}  // namespace tithe::sparse
