// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/sparse_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "codec/shared/floats/bf16_format.h"
#include "codec/shared/floats/fp16_format.h"
#include "codec/shared/floats/size_classes.h"

namespace tithe::sparse {
namespace {

constexpr std::size_t kBits[] = {32, 16, 16, 8, 4, 0, 2};  // bits of one value, by form; inceptionn's vary
constexpr std::size_t kBlockHead = 2;
constexpr std::size_t kPairHead = 4;  // of 2bit

bool in_blocks(ValueForm form) { return form >= ValueForm::kF16; }
std::size_t blocks(std::size_t count) { return (count + kValueBlock - 1) / kValueBlock; }

std::uint32_t magnitude_of(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// fp16: the scale of a block, a power of two; the scale and its inverse are normal floats.
constexpr std::uint32_t kMaxExponent = 254;
constexpr std::uint32_t kMaxHalf = 0x77ff;  // the largest below 2^15: finite with every scale

float half_scale(std::uint32_t e) { return std::bit_cast<float>((std::max(e, 15U) - 14U) << 23); }
float half_inverse(std::uint32_t e) { return std::bit_cast<float>((268U - std::max(e, 15U)) << 23); }

void write_halves(std::span<const float> v, std::uint8_t* out) {
  std::uint32_t e = 0;
  for (const float x : v) e = std::max(e, std::min(magnitude_of(x) >> 23, kMaxExponent));
  wire::put(out, static_cast<std::uint16_t>(e));
  out += kBlockHead;
  for (const float x : v) {
    const std::uint32_t h = fp16::Format::pack(x * half_inverse(e));
    wire::put(out, static_cast<std::uint16_t>((h & 0x8000U) | std::min(h & 0x7fffU, kMaxHalf)));
    out += 2;
  }
}

// True if all values are finite: adding 1 to an exponent of all ones carries into the sign bit. There are no branches,
// so the compiler vectorises the loop.
bool floats_hold(const std::uint8_t* array, std::size_t count) {
  std::uint32_t carries = 0;
  for (std::size_t j = 0; j < count; ++j)
    carries |= (wire::get<std::uint32_t>(array + 4 * j) & 0x7fffffffU) + 0x00800000U;
  return carries >> 31 == 0;
}

bool bfloats_hold(const std::uint8_t* array, std::size_t count) {
  std::uint32_t carries = 0;
  for (std::size_t j = 0; j < count; ++j)
    carries |= (wire::get<std::uint16_t>(array + 2 * j) & 0x7fffU) + 0x80U;
  return carries >> 15 == 0;
}

bool halves_hold(const std::uint8_t* block, std::size_t length) {
  if (wire::get<std::uint16_t>(block) > kMaxExponent) return false;
  for (std::size_t k = 0; k < length; ++k)
    if ((wire::get<std::uint16_t>(block + kBlockHead + 2 * k) & 0x7fffU) > kMaxHalf) return false;
  return true;
}

// The log scale of 8bit and 4bit.
struct Scale {
  int shift;           // bits of a float below its level
  std::uint32_t zero;  // the step that represents 0; all ones

  std::uint32_t most() const { return 0x7f7fffffU >> shift; }
  std::uint32_t level(float v) const {
    return std::min((magnitude_of(v) + (1U << (shift - 1))) >> shift, most());
  }
  std::uint32_t code(std::uint32_t top, float v) const {
    const std::uint32_t at = level(v);
    if (at == 0 || top - at >= zero) return zero;
    return (std::bit_cast<std::uint32_t>(v) >> 31) * (zero + 1) + (top - at);
  }
  float value(std::uint32_t top, std::uint32_t code) const {
    const std::uint32_t step = code & zero;
    if (step == zero) return 0.0F;
    const std::uint32_t sign = code > zero ? 0x80000000U : 0U;
    return std::bit_cast<float>(sign | (top - step) << shift);
  }
};

Scale scale_of(ValueForm form) {
  return form == ValueForm::k8Bit ? Scale{.shift = 20, .zero = 127} : Scale{.shift = 22, .zero = 7};
}

std::uint32_t code_at(ValueForm form, const std::uint8_t* codes, std::size_t k) {
  return form == ValueForm::k8Bit ? codes[k] : codes[k / 2] >> 4 * (k % 2) & 15U;
}

void write_codes(ValueForm form, std::span<const float> v, std::uint8_t* out) {
  const Scale scale = scale_of(form);
  std::uint32_t top = 0;
  for (const float x : v) top = std::max(top, scale.level(x));
  wire::put(out, static_cast<std::uint16_t>(top));
  out += kBlockHead;
  for (std::size_t k = 0; k < v.size(); ++k) {
    const std::uint32_t code = scale.code(top, v[k]);
    if (form == ValueForm::k8Bit)
      out[k] = static_cast<std::uint8_t>(code);
    else
      out[k / 2] = static_cast<std::uint8_t>(k % 2 == 0 ? code : out[k / 2] | code << 4);
  }
}

bool codes_hold(ValueForm form, const std::uint8_t* block, std::size_t length) {
  const Scale scale = scale_of(form);
  const std::uint32_t top = wire::get<std::uint16_t>(block);
  if (top > scale.most()) return false;
  const std::uint8_t* codes = block + kBlockHead;
  for (std::size_t k = 0; k < length; ++k) {
    const std::uint32_t step = code_at(form, codes, k) & scale.zero;
    if (step != scale.zero && step >= top) return false;
  }
  return form == ValueForm::k8Bit || length % 2 == 0 || codes[length / 2] >> 4 == 0;
}

// 2bit
constexpr double kMinLow = 0x1p-15;
float bf16_below(double magnitude) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(magnitude)) & 0xffff0000U);
}
// At most the largest finite float, whatever v is.
double finite_magnitude(float v) { return std::bit_cast<float>(std::min(magnitude_of(v), 0x7f7fffffU)); }

// The magnitudes that share one code, and their representative. Sums of 128 are in double, in order: the mean of
// equal floats is that float, and no mean is above the largest.
struct MagnitudeClass {
  double sum = 0, least = 0, most = 0;
  std::size_t count = 0;

  void add(double m) {
    least = count == 0 ? m : std::min(least, m);
    most = std::max(most, m);
    sum += m;
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  float level() const {
    const float cut = bf16_below(std::min(mean(), 2 * least));
    return cut < kMinLow * most ? 0.0F : cut;
  }
};

void write_pairs(std::span<const float> v, std::uint8_t* out) {
  MagnitudeClass all, low, high;
  for (const float x : v) all.add(finite_magnitude(x));
  const double mean = all.mean();
  for (const float x : v) (finite_magnitude(x) < mean ? low : high).add(finite_magnitude(x));
  wire::put(out, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(low.level()) >> 16));
  wire::put(out + 2, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(high.level()) >> 16));
  out += kPairHead;
  std::fill_n(out, (v.size() + 3) / 4, std::uint8_t{0});
  for (std::size_t k = 0; k < v.size(); ++k) {
    const unsigned code =
        (std::bit_cast<std::uint32_t>(v[k]) >> 31) * 2 + (finite_magnitude(v[k]) < mean ? 0U : 1U);
    out[k / 4] = static_cast<std::uint8_t>(out[k / 4] | code << 2 * (k % 4));
  }
}

// Indexed by code. A level of 0 decodes to +0 with either sign.
std::array<float, 4> pair_values(const std::uint8_t* block) {
  const float low = bf16::Format::unpack(wire::get<std::uint16_t>(block));
  const float high = bf16::Format::unpack(wire::get<std::uint16_t>(block + 2));
  return {low, high, 0 - low, 0 - high};
}
unsigned pair_at(const std::uint8_t* codes, std::size_t k) { return codes[k / 4] >> 2 * (k % 4) & 3U; }

bool pairs_hold(const std::uint8_t* block, std::size_t length) {
  const std::uint32_t low = wire::get<std::uint16_t>(block), high = wire::get<std::uint16_t>(block + 2);
  if (low > high || high >= 0x7f80) return false;
  return length % 4 == 0 || block[kPairHead + length / 4] >> 2 * (length % 4) == 0;
}

// inceptionn
constexpr std::size_t kClassesTail = 4;
constexpr std::size_t tag_bytes(std::size_t length) { return (length + 3) / 4; }
unsigned tag_at(const std::uint8_t* tags, std::size_t k) { return tags[k / 4] >> 2 * (k % 4) & 3U; }
const inceptionn::Classes& unit_classes() {
  static const inceptionn::Classes kClasses = inceptionn::classes(inceptionn::kStrict, 10);
  return kClasses;
}

std::uint8_t* write_classes(std::span<const float> v, std::uint8_t* out) {
  std::uint32_t e = 0;
  for (const float x : v) e = std::max(e, std::min(magnitude_of(x) >> 23, kMaxExponent));
  *out++ = static_cast<std::uint8_t>(e);
  std::uint8_t* const tags = out;
  out = std::fill_n(tags, tag_bytes(v.size()), std::uint8_t{0});
  for (std::size_t k = 0; k < v.size(); ++k) {
    const float x = std::ldexp(v[k], 126 - static_cast<int>(e));
    // 0: not finite.
    const inceptionn::CodedValue sent = inceptionn::send(unit_classes(), std::fabs(x) < 1 ? x : 0.0F);
    tags[k / 4] = static_cast<std::uint8_t>(tags[k / 4] | sent.tag << 2 * (k % 4));
    inceptionn::put_bytes(out, sent.tag, sent.word);
    out += inceptionn::kTagBytes[sent.tag];
  }
  return out;
}

// Walks the blocks, whose sizes follow from their tags. Tag 3 and tags past the last value are invalid.
bool classes_hold(std::span<const std::uint8_t> array, std::size_t count) {
  if (count == 0) return array.empty();
  if (array.size() < kClassesTail) return false;
  std::span<const std::uint8_t> rest = array.first(array.size() - kClassesTail);
  for (std::size_t first = 0; first < count; first += kValueBlock) {
    const std::size_t length = std::min(kValueBlock, count - first);
    const std::size_t head = 1 + tag_bytes(length);
    if (rest.size() < head || rest[0] > kMaxExponent) return false;
    std::size_t bytes = head;
    for (std::size_t k = 0; k < 4 * tag_bytes(length); ++k) {
      const unsigned tag = tag_at(&rest[1], k);
      if (tag == 3 || (tag != 0 && k >= length)) return false;
      bytes += inceptionn::kTagBytes[tag];
    }
    if (rest.size() < bytes) return false;
    rest = rest.subspan(bytes);
  }
  return rest.empty();
}

}  // namespace

std::size_t value_bytes(ValueForm form, std::size_t count) {
  if (form == ValueForm::kInceptionn)
    return count == 0 ? 0 : blocks(count) + tag_bytes(count) + 2 * count + kClassesTail;
  const std::size_t head = form == ValueForm::k2Bit ? kPairHead : in_blocks(form) ? kBlockHead : 0;
  return blocks(count) * head + (count * kBits[static_cast<std::size_t>(form)] + 7) / 8;
}

std::uint8_t* write_values(ValueForm form, std::span<const float> values, std::uint8_t* out) {
  if (form == ValueForm::kInceptionn) {
    std::uint8_t* at = out;
    for (std::size_t first = 0; first < values.size(); first += kValueBlock)
      at = write_classes(values.subspan(first, std::min(kValueBlock, values.size() - first)), at);
    if (values.empty()) return at;
    wire::put(at, static_cast<std::uint32_t>(at + kClassesTail - out));
    return at + kClassesTail;
  }
  std::uint8_t* const end = out + value_bytes(form, values.size());
  if (form == ValueForm::kF32) {
    for (const float v : values) wire::put(out, v), out += 4;
  } else if (form == ValueForm::kBF16) {
    for (const float v : values) wire::put(out, bf16::Format::pack(v)), out += 2;
  } else {
    for (std::size_t first = 0; first < values.size(); first += kValueBlock) {
      const auto block = values.subspan(first, std::min(kValueBlock, values.size() - first));
      std::uint8_t* const to = out + value_bytes(form, first);
      if (form == ValueForm::kF16)
        write_halves(block, to);
      else if (form == ValueForm::k2Bit)
        write_pairs(block, to);
      else
        write_codes(form, block, to);
    }
  }
  return end;
}

float value_at(ValueForm form, const std::uint8_t* array, std::size_t j) {
  if (form == ValueForm::kF32) return wire::get<float>(array + 4 * j);
  if (form == ValueForm::kBF16) return bf16::Format::unpack(wire::get<std::uint16_t>(array + 2 * j));
  const std::size_t k = j % kValueBlock;
  const std::uint8_t* block = array + value_bytes(form, j - k);
  if (form == ValueForm::k2Bit) return pair_values(block)[pair_at(block + kPairHead, k)];
  const std::uint32_t head = wire::get<std::uint16_t>(block);
  if (form == ValueForm::kF16)
    return fp16::Format::unpack(wire::get<std::uint16_t>(block + kBlockHead + 2 * k)) * half_scale(head);
  return scale_of(form).value(head, code_at(form, block + kBlockHead, k));
}

// Reads values [first, first + out.size()), which must be in one block of kValueBlock values.
void read_values(ValueForm form, const std::uint8_t* array, std::size_t first, std::span<float> out) {
  const std::uint8_t* block = array + value_bytes(form, first);
  const std::uint8_t* codes = block + kBlockHead;
  switch (form) {
    case ValueForm::kF32:
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = wire::get<float>(block + 4 * k);
      return;
    case ValueForm::kBF16:
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = bf16::Format::unpack(wire::get<std::uint16_t>(block + 2 * k));
      return;
    case ValueForm::kF16: {
      const float scale = half_scale(wire::get<std::uint16_t>(block));
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = fp16::Format::unpack(wire::get<std::uint16_t>(codes + 2 * k)) * scale;
      return;
    }
    case ValueForm::k8Bit:
    case ValueForm::k4Bit: {
      const Scale scale = scale_of(form);
      const std::uint32_t top = wire::get<std::uint16_t>(block);
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = scale.value(top, code_at(form, codes, k));
      return;
    }
    case ValueForm::k2Bit: {
      const std::array<float, 4> values = pair_values(block);
      for (std::size_t k = 0; k < out.size(); ++k) out[k] = values[pair_at(block + kPairHead, k)];
      return;
    }
    case ValueForm::kInceptionn:  // has no fixed offsets
      return;
  }
}

std::size_t array_bytes(ValueForm form, std::span<const std::uint8_t> area, std::size_t count) {
  if (form != ValueForm::kInceptionn || count == 0) return value_bytes(form, count);
  if (area.size() < kClassesTail) return area.size() + 1;
  return wire::get<std::uint32_t>(area.data() + area.size() - kClassesTail);
}

float ValueReader::next() {
  const std::size_t j = read_++;
  if (form_ != ValueForm::kInceptionn) return value_at(form_, at_, j);
  if (j % kValueBlock == 0) {
    exponent_ = static_cast<int>(at_[0]) - 126;
    tags_ = at_ + 1;
    at_ = tags_ + tag_bytes(std::min(kValueBlock, count_ - j));
  }
  const unsigned tag = tag_at(tags_, j % kValueBlock);
  const float x = inceptionn::receive(unit_classes(), tag, at_);
  at_ += inceptionn::kTagBytes[tag];
  return std::ldexp(x, exponent_);
}

void ValueReader::read(std::span<float> out) {
  if (form_ == ValueForm::kInceptionn) {
    for (float& v : out) v = next();
  } else {
    read_values(form_, at_, read_, out);
    read_ += out.size();
  }
}

bool values_hold(ValueForm form, std::span<const std::uint8_t> array, std::size_t count) {
  if (form == ValueForm::kInceptionn) return classes_hold(array, count);
  if (form == ValueForm::kF32) return floats_hold(array.data(), count);
  if (form == ValueForm::kBF16) return bfloats_hold(array.data(), count);
  for (std::size_t first = 0; first < count; first += kValueBlock) {
    const std::size_t length = std::min(kValueBlock, count - first);
    const std::uint8_t* block = array.data() + value_bytes(form, first);
    if (!(form == ValueForm::kF16    ? halves_hold(block, length)
          : form == ValueForm::k2Bit ? pairs_hold(block, length)
                                     : codes_hold(form, block, length)))
      return false;
  }
  return true;
}

}  // namespace tithe::sparse
