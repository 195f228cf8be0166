// SPDX-License-Identifier: Apache-2.0
#include "codec/eden/eden.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/finite.h"
#include "base/fold.h"
#include "codec/shared/common/block.h"
#include "codec/shared/common/float_sums.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/floats/bf16_format.h"

namespace tithe {
namespace eden {

std::uint16_t scale_of(const Coder& coder, const Block& block, double norm, const Products& products) {
  const double with_values = norm * static_cast<double>(products.with_values) / kSteps;
  const double energy = static_cast<double>(block.width) * static_cast<double>(products.with_itself);
  const double ideal = coder.unbiased ? norm * norm / with_values : with_values / energy;
  const auto scale =
      static_cast<float>(norm > (coder.unbiased ? kLargeUnbiased : kLarge) ? ideal * kShrink : ideal);
  if (!coder.unbiased) return bf16::Format::pack(scale);
  // Up or down at random, so that the mean is the scale.
  const std::uint32_t draw = draw32(coder.own, static_cast<std::uint32_t>(block.first / kMinWidth)) >> 16;
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(scale) + draw) >> 16);
}

namespace {

enum Param : std::size_t { kBits, kScale };
constexpr std::string_view kWords[] = {"1", "1.6", "2", "3", "4"};
constexpr std::string_view kScales[] = {"fit", "unbiased"};
constexpr ParamSpec kParams[] = {
    {"bits", 4, 0, 4,
     "bits per value: 2^bits levels with the least error for normal values; 1.6: three levels", kWords},
    {"scale", 0, 0, 1, "scale of a block: fit has the least error; unbiased: as published, for feedback=none",
     kScales}};

const Levels& levels_of(const Settings& s) { return kLevels[static_cast<std::size_t>(s[kBits])]; }
Coder coder_of(const Settings& s, std::uint64_t key, std::uint64_t own = 0) {
  return {levels_of(s), s[kScale] != 0, key, own};
}
std::size_t bound(const Settings& s, std::size_t n) {
  return each_block(levels_of(s), n, n / kBlock, [](const Block&, std::size_t) {});
}

std::uint64_t key_of(ByteView payload) { return wire::get<std::uint64_t>(payload.data()); }
float scale_at(const std::uint8_t* at) { return bf16::Format::unpack(wire::get<std::uint16_t>(at)); }

// True if all bytes are base-3 digits, and the padding digits are 0.
bool are_digits(const std::uint8_t* codes, std::size_t width, std::size_t bytes) {
  const std::size_t whole = width - 4 * bytes;  // these have five digits
  std::uint8_t most = 0, max_of_four = 0;
  for (std::size_t i = 0; i < whole; ++i) most = std::max(most, codes[i]);
  for (std::size_t i = whole; i < bytes; ++i) max_of_four = std::max(max_of_four, codes[i]);
  return most < kPowers[5] && max_of_four < kPowers[4];
}

// True if the block's scale is valid and no decoded value overflows: a value is at most the scale times the sum of
// all level magnitudes.
bool is_scale(const Levels& levels, const Block& block, const std::uint8_t* at) {
  const float scale = scale_at(at);
  if (!(scale >= kMinScale && is_finite(scale))) return false;
  if (scale <= kSafeScale) return true;
  double sizes = 0;
  for (std::size_t i = 0; i < block.width; ++i)
    sizes += std::abs(levels.level(get_code(at + kScaleBytes, levels, block.width, i)));
  return scale * sizes <= std::numeric_limits<float>::max();
}

// Every decoded value must be finite; unused digits, and the codes of a block without a scale, must be 0.
Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("eden", payload.size(), bound(call.settings, n)));
  const Levels& levels = levels_of(call.settings);
  if (payload[8] != levels.bits || payload[9] != 0)
    return {Code::kCorrupt, "eden: bits differ from the settings"};
  Status found;
  each_block(levels, n, 0, [&](const Block& block, std::size_t offset) {
    const std::uint8_t* at = &payload[offset];
    const auto refuse = [&](const char* why) {
      found = {Code::kCorrupt,
               "eden: " + std::string(why) + " of values from " + std::to_string(block.first)};
    };
    if (block.width == 0) {
      for (std::size_t i = 0; i < block.values; ++i)
        if (!is_finite(wire::get<float>(at + 4 * i))) refuse("not finite, one");
      return;
    }
    if (levels.bits == kThree && !are_digits(at + kScaleBytes, block.width, levels.bytes(block.width)))
      refuse("no digits");
    if (wire::get<std::uint16_t>(at) == 0) {
      if (!std::all_of(at + kScaleBytes, at + block.bytes(levels), [](std::uint8_t b) { return b == 0; }))
        refuse("codes without a scale");
    } else if (!is_scale(levels, block, at)) {
      refuse("no scale");
    }
  });
  return found;
}

// ---- The reference

using Values = std::array<float, kBlock>;

float energy_of(std::span<const float> x) {
  Fold<float> sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add(i, x[i] * x[i]);
  return sum.total();
}

// A power of two that scales the largest magnitude, given as bits, to about 1.
float lift_of(std::uint32_t peak) {
  return std::ldexp(1.0F, std::clamp(127 - static_cast<int>(peak >> 23), -120, 100));
}

// Decodes the block's values from its codes.
void values_of(const Coder& coder, const Block& block, const std::uint8_t* at, Values& x) {
  const float scale = scale_at(at);
  for (std::size_t i = 0; i < block.width; ++i)
    x[i] += scale *
            static_cast<float>(coder.levels.level(get_code(at + kScaleBytes, coder.levels, block.width, i)));
}

void rotate_back(const Coder& coder, const Block& block, Values& x) {
  rotation::transform(x.data(), block.width);
  for (std::size_t i = 0; i < block.values; ++i) x[i] = rotation::turned(x[i], coder.key, block.first + i);
}

}  // namespace

// The block is scaled by a power of two if the sum of squares would overflow or vanish in float; `lift` is divided
// out of the norm. Residual = value - decoded value, computed as the decoder computes it.
bool encode_block(const Coder& coder, const Block& block, const EncodeInput& in, std::uint8_t* at) {
  std::fill_n(at, block.bytes(coder.levels), std::uint8_t{0});
  Values x{};
  std::uint32_t peak = 0;
  for (std::size_t i = 0; i < in.n; ++i) {
    x[i] = in.value(i);
    peak = std::max(peak, block::magnitude_bits(x[i]));
  }
  if (peak >= 0x7f800000U || std::bit_cast<float>(peak) < kDust) {
    for (std::size_t i = 0; i < in.n; ++i) in.store_residual(i, 0.0F);
    return peak < 0x7f800000U;
  }
  float lift = 1, energy = energy_of({x.data(), in.n});
  if (!(energy >= kMinEnergy && energy <= kMaxEnergy)) {
    lift = lift_of(peak);
    for (float& v : x) v *= lift;
    energy = energy_of({x.data(), in.n});
  }
  for (std::size_t i = 0; i < in.n; ++i) x[i] = rotation::turned(x[i], coder.key, block.first + i);
  rotation::transform(x.data(), block.width);
  const double norm = std::sqrt(static_cast<double>(energy));
  const auto steps_per_unit = static_cast<float>(kSteps / norm);
  Products products;
  for (std::size_t i = 0; i < block.width; ++i) {
    const int steps = steps_of(x[i], steps_per_unit);
    const unsigned code = coder.levels.code(steps);
    const int level = coder.levels.level(code);
    put_code(at + kScaleBytes, coder.levels, block.width, i, code);
    products.with_values += steps * level;
    products.with_itself += level * level;
  }
  wire::put(at, scale_of(coder, block, norm / lift, products));
  if (!in.residual_out) return true;
  x.fill(0.0F);
  values_of(coder, block, at, x);
  rotate_back(coder, block, x);
  for (std::size_t i = 0; i < in.n; ++i) in.store_residual(i, x[i]);
  return true;
}

void decode_block(const Coder& coder, const Block& block, std::size_t offset,
                  std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  Values x{};
  for (const ByteView p : payloads) values_of(coder, block, &p[offset], x);
  rotate_back(coder, block, x);
  for (std::size_t i = block.first; i < block.first + block.values; ++i)
    out[i] = codec::merged(how, i, x[i - block.first]);
}

namespace {

// ---- Blocks without a scale

void decode_raw(const Block& block, std::size_t offset, std::span<const ByteView> payloads, const Merge& how,
                std::span<float> out) {
  for (std::size_t i = 0; i < block.values; ++i) {
    float sum = payloads.empty() ? 0.0F : sums::value_at(payloads[0].subspan(offset), i);
    for (std::size_t p = 1; p < payloads.size(); ++p) sum += sums::value_at(payloads[p].subspan(offset), i);
    out[block.first + i] = codec::merged(how, block.first + i, sum);
  }
}

// ---- All blocks

// The kernels process whole blocks of kBlock values; the shorter blocks at the end take the reference path.
template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("eden", out.size(), bound(call.settings, in.n)));
  const Coder coder =
      coder_of(call.settings, rng_key(call.shared_seed, call.round, call.tensor, call.chunk, call.phase),
               block::key(call));
  wire::put(out.data(), coder.key);
  out[8] = static_cast<std::uint8_t>(coder.levels.bits);
  out[9] = 0;
  bool finite = true;
  const std::size_t done = kWith.encode(coder, in, out.data(), finite);
  const std::size_t bytes = each_block(coder.levels, in.n, done, [&](const Block& block, std::size_t offset) {
    const EncodeInput part = block::part(in, block.first, block.values);
    finite = (block.width == 0 ? sums::encode_from(0, part, &out[offset])
                               : encode_block(coder, block, part, &out[offset])) &&
             finite;
  });
  return Encoded{bytes, finite};
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  for (const ByteView p : payloads)
    if (key_of(p) != key_of(payloads[0])) return {Code::kCorrupt, "eden: ranks drew different signs"};
  const Coder coder = coder_of(call.settings, payloads.empty() ? 0 : key_of(payloads[0]));
  const std::size_t done = kWith.decode(coder, payloads, how, out);
  each_block(coder.levels, out.size(), done, [&](const Block& block, std::size_t offset) {
    if (block.width == 0)
      decode_raw(block, offset, payloads, how, out);
    else
      decode_block(coder, block, offset, payloads, how, out);
  });
  return {};
}

// The text of eden.cu, preceded by the settings and levels that it is compiled for.
std::string kernels(const Settings& s) {
  const Levels& levels = levels_of(s);
  std::string sizes, borders;
  for (const int size : levels.size)
    if (size != 0 || sizes.empty()) sizes += std::to_string(size) + ", ";
  for (const int border : levels.from)
    if (border != 255) borders += std::to_string(border) + ", ";
  return "#define EDEN_BITS " + std::to_string(levels.bits) + "\n#define EDEN_UNBIASED " +
         std::to_string(s[kScale] != 0) + "\n#define EDEN_SIZES " + sizes + "\n#define EDEN_BORDERS " +
         borders + "\n" + kCudaText;
}

// The rounding to steps and the scale's 8 bits add less than 2^-17. The unbiased scale has no bound: it is large if
// <r, q> is small.
double contraction(const Settings& s, std::size_t) {
  if (s[kScale] != 0) return std::numeric_limits<double>::infinity();
  const auto which = static_cast<std::size_t>(s[kBits]);
  return (which == 0 ? kLosesOneBit : kMajorants[which - 1].mean()) + 0x1p-17;
}

constexpr Law kLaws[] = {Law::kDecode, Law::kConcat};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {
    .encode = [](const Coder&, const EncodeInput&, std::uint8_t*, bool&) { return std::size_t{0}; },
    .decode = [](const Coder&, std::span<const ByteView>, const Merge&,
                 std::span<float>) { return std::size_t{0}; }};

}  // namespace eden

const Codec eden_codec = {
    .name = "eden",
    .doc =
        "the nearest of 2^bits levels of rotated values, added before they are rotated back (Vargaftik et "
        "al. 2022)",
    .params = eden::kParams,
    .phases = eden::kPhases,
    .traits = {.fixed_size = true, .adds_transformed = true, .contraction = eden::contraction},
    .scratch = codec::no_scratch,
    .impls = eden::kImpls,
    .kernels = eden::kernels};

}  // namespace tithe
