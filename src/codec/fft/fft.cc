// SPDX-License-Identifier: Apache-2.0
#include "codec/fft/fft.h"

#include <numeric>
#include <string>

#include "codec/shared/common/payload.h"

namespace tithe {
namespace fft {
namespace {

enum Param : std::size_t { kRatio, kBits, kMantissa, kBlock };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.15, 1e-4, 1, "part of the frequencies that is sent, 1 - theta", {}, Role::kRatio},
    whole_number(
        {"bits", 8, range::kMinBits, range::kMaxBits, "bits of a coefficient's real or imaginary part, N"}),
    whole_number({"mantissa", 0, 0, range::kMaxBits - 2,
                  "mantissa bits, below N - 1; 0 = N - 4: codes reach down to 2^-8 of the largest"}),
    whole_number(
        {"block", 4096, 1 << kMinLog, 1 << kMaxLog, "values per transform; rounded down to a power of two"})};

Head head_of(const Settings& s) {
  const int bits = static_cast<int>(s[kBits]);
  const int mantissa = static_cast<int>(s[kMantissa]);
  const int log = static_cast<int>(std::bit_width(static_cast<unsigned>(s[kBlock]))) - 1;
  const double bins = std::ldexp(1.0, log - 1);
  return {.code = {bits, std::clamp(mantissa == 0 ? bits - 4 : mantissa, 1, bits - 2)},
          .log = log,
          .kept = static_cast<std::size_t>(std::clamp(std::ceil(s[kRatio] * bins), 1.0, bins))};
}

std::size_t bytes(const Head& head, std::size_t n) {
  if (n == 0) return kHead;
  const Block last = block_at(head, n, blocks(head, n) - 1);
  return last.at + last.bytes(head.code);
}
std::size_t bound(const Settings& s, std::size_t n) { return bytes(head_of(s), n); }

void write_head(const Head& head, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(head.code.bits);
  out[1] = static_cast<std::uint8_t>(head.code.mantissa);
  out[2] = static_cast<std::uint8_t>(head.log);
  out[3] = 0;
  wire::put(out + 4, static_cast<std::uint32_t>(head.kept));
}

// Each bitmap must have exactly as many bits as the settings send, since all later offsets depend on it.
Status check(const Call& call, std::size_t n, ByteView payload) {
  const Head head = head_of(call.settings);
  TITHE_TRY(codec::check_size("fft", payload.size(), bytes(head, n)));
  std::uint8_t expected[kHead];
  write_head(head, expected);
  if (!std::equal(expected, expected + kHead, payload.begin()))
    return {Code::kCorrupt, "fft: blocks, bins or codes differ from the settings"};
  for (std::size_t j = 0; j < blocks(head, n); ++j) {
    const Block block = block_at(head, n, j);
    const std::uint8_t* at = &payload[block.at];
    std::size_t sent = 0;
    for (std::size_t k = 0; k < block.bitmap_bytes(); ++k)
      sent += static_cast<std::size_t>(std::popcount(at[kBlockHead + k]));
    if (!range::is_base(head.code, wire::get<std::uint32_t>(at)) || sent != block.kept)
      return {Code::kCorrupt, "fft: range or number of bins of block " + std::to_string(j)};
    if (!bit_packing::ends_clean(at + kBlockHead + block.bitmap_bytes(), 2 * block.kept, head.code.width()))
      return {Code::kCorrupt, "fft: a bit past the last code"};
  }
  return {};
}

// By Parseval the bins hold all energy, and the strongest bins at least their share. Rounding loses 4^-(m + 1) of that
// share. Numbers below eps / 2 lose at most (eps / 2)^2 each: 2 k numbers, all but those of bin 0 counted twice. Holds
// for values below 2^123.
double contraction(const Settings& s, std::size_t) {
  const Head head = head_of(s);
  const double bins = std::ldexp(1.0, head.log - 1);
  const double share = static_cast<double>(head.kept) / bins;
  const double octaves = std::ldexp(std::ldexp(1.0, head.code.bits - 1) - 2, -head.code.mantissa);
  const double vanishing = 4 * static_cast<double>(head.kept) * std::pow(4.0, -octaves);
  const double codes = std::min(1.0, std::pow(4.0, -(head.code.mantissa + 1)) + vanishing);
  return 1 - share * (1 - codes) + 1e-6;
}

// ---- The reference

// The bins of 2 L times the values in z; value pair j is at index bit_reversed[j].
void forward(const fourier::Tables& t, Complex* z, Complex* c) {
  const std::size_t bins = t.length;
  fourier::transform(t, {z, bins});
  c[0] = {2 * (z[0].re + z[0].im), 2 * (z[0].re - z[0].im)};
  c[bins / 2] = {2 * z[bins / 2].re, -2 * z[bins / 2].im};
  for (std::size_t f = 1; f < bins / 2; ++f) {
    const Complex a = z[f], b = z[bins - f];
    const Complex even = {a.re + b.re, a.im - b.im};
    const Complex odd = fourier::times({a.im + b.im, b.re - a.re}, t.turn[f]);
    c[f] = {even.re + odd.re, even.im + odd.im};
    c[bins - f] = {even.re - odd.re, odd.im - even.im};
  }
}

// The values of bins: value 2 j is the im, value 2 j + 1 the re of z[j]. The inverse transform is the forward one with
// real and imaginary parts exchanged before and after.
void inverse(const fourier::Tables& t, const Complex* c, Complex* z) {
  const std::size_t bins = t.length;
  z[0] = {c[0].re - c[0].im, c[0].re + c[0].im};
  z[t.bit_reversed[bins / 2]] = {-2 * c[bins / 2].im, 2 * c[bins / 2].re};
  for (std::size_t f = 1; f < bins / 2; ++f) {
    const Complex a = c[f], b = c[bins - f], w = t.turn[f];
    const Complex even = {a.re + b.re, a.im - b.im};
    const Complex odd = fourier::times({a.re - b.re, a.im + b.im}, {w.re, -w.im});
    z[t.bit_reversed[f]] = {even.im + odd.re, even.re - odd.im};
    z[t.bit_reversed[bins - f]] = {odd.re - even.im, even.re + odd.im};
  }
  fourier::transform(t, {z, bins});
}

float value(const Complex* z, std::size_t i) { return i % 2 == 0 ? z[i / 2].im : z[i / 2].re; }

std::uint32_t energy(const Complex* c, std::size_t f) {
  const float sum = c[f].re * c[f].re + c[f].im * c[f].im;
  return range::magnitude(f == 0 ? 0.5F * sum : sum);
}

void write(const range::Head& code, const Block& block, const Complex* c, float up, std::uint32_t* order,
           std::uint8_t* to) {
  const std::size_t bins = block.bins();
  std::iota(order, order + bins, 0U);
  std::nth_element(order, order + block.kept - 1, order + bins, [&](std::uint32_t a, std::uint32_t b) {
    return energy(c, a) != energy(c, b) ? energy(c, a) > energy(c, b) : a < b;
  });
  std::sort(order, order + block.kept);
  std::uint32_t largest = 0;
  for (std::size_t j = 0; j < block.kept; ++j)
    for (const float part : {c[order[j]].re, c[order[j]].im})
      largest = std::max(largest, range::magnitude(part * up));
  const auto codes = range::Codes::ending_at(code, largest);
  std::fill_n(to, block.bytes(code), std::uint8_t{0});
  wire::put(to, codes.base);
  std::uint8_t* bitmap = to + kBlockHead;
  std::uint8_t* run = bitmap + block.bitmap_bytes();
  for (std::size_t j = 0; j < block.kept; ++j) {
    const std::uint32_t f = order[j];
    bitmap[f / 8] = static_cast<std::uint8_t>(bitmap[f / 8] | 1U << (f % 8));
    bit_packing::put(run, 2 * j, code.width(), codes.pack(c[f].re * up));
    bit_packing::put(run, 2 * j + 1, code.width(), codes.pack(c[f].im * up));
  }
}

void add_bins(const range::Head& code, const Block& block, const std::uint8_t* from, Complex* c) {
  const auto codes = range::Codes::of(code, wire::get<std::uint32_t>(from));
  const std::uint8_t* bitmap = from + kBlockHead;
  const std::uint8_t* run = bitmap + block.bitmap_bytes();
  std::size_t j = 0;
  for (std::size_t f = 0; f < block.bins(); ++f)
    if (bitmap[f / 8] >> (f % 8) & 1U) {
      c[f].re += codes.unpack(bit_packing::get(run, j++, code.width()));
      c[f].im += codes.unpack(bit_packing::get(run, j++, code.width()));
    }
}

}  // namespace

bool encode_block(const Head& head, const Block& block, const EncodeInput& in, const Room& room,
                  std::uint8_t* payload) {
  const fourier::Tables& t = block.tables();
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < block.values; ++i)
    largest = std::max(largest, range::magnitude(in.value(block.first + i)));
  const Scale scale = Scale::of(largest, block.log);
  const auto scaled = [&](std::size_t i) {
    return i < block.values && scale.down > 0 ? in.value(block.first + i) * scale.down : 0.0F;
  };
  for (std::size_t j = 0; j < block.bins(); ++j)
    room.z[t.bit_reversed[j]] = {scaled(2 * j), scaled(2 * j + 1)};
  forward(t, room.z, room.c);
  write(head.code, block, room.c, scale.up, room.order, payload + block.at);
  if (in.residual_out) {
    std::fill_n(room.c, block.bins(), Complex{});
    add_bins(head.code, block, payload + block.at, room.c);
    inverse(t, room.c, room.z);
    for (std::size_t i = 0; i < block.values; ++i) in.store_residual(block.first + i, value(room.z, i));
  }
  return largest <= range::kLargest;
}

void decode_block(const Head& head, const Block& block, std::span<const ByteView> payloads, const Merge& how,
                  const Room& room, std::span<float> out) {
  std::fill_n(room.c, block.bins(), Complex{});
  for (const ByteView p : payloads) add_bins(head.code, block, &p[block.at], room.c);
  inverse(block.tables(), room.c, room.z);
  for (std::size_t i = 0; i < block.values; ++i) {
    const std::size_t at = block.first + i;
    out[at] = codec::merged(how, at, value(room.z, i));
  }
}

namespace {

int max_log(const Head& head, std::size_t n) {
  return n >= head.length() ? head.log : n == 0 ? kMinLog : block_at(head, n, 0).log;
}

std::size_t scratch(const Settings& s, std::size_t n) {
  const Head head = head_of(s);
  const std::size_t one = Room::bytes(max_log(head, n));
  return n >= head.length() ? std::max(one, Work::bytes(head)) : one;
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const Settings& s = call.settings;
  TITHE_TRY(codec::check_room("fft", out.size(), bound(s, in.n)));
  TITHE_TRY(codec::check_scratch("fft", call.scratch.size(), scratch(s, in.n)));
  const Head head = head_of(s);
  const Room room = Room::at(call.scratch.data(), max_log(head, in.n));
  write_head(head, out.data());
  bool finite = true;
  std::size_t j = 0;
  if (in.n >= head.length()) j = kWith.encode(head, in, out.data(), call.scratch.data(), finite);
  for (; j < blocks(head, in.n); ++j)
    finite = encode_block(head, block_at(head, in.n, j), in, room, out.data()) && finite;
  return Encoded{bound(s, in.n), finite};
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t n = out.size();
  TITHE_TRY(codec::check_all(check, call, payloads, n));
  TITHE_TRY(codec::check_scratch("fft", call.scratch.size(), scratch(call.settings, n)));
  const Head head = head_of(call.settings);
  const Room room = Room::at(call.scratch.data(), max_log(head, n));
  std::size_t j = 0;
  if (n >= head.length()) j = kWith.decode(head, payloads, how, out, call.scratch.data());
  for (; j < blocks(head, n); ++j) decode_block(head, block_at(head, n, j), payloads, how, room, out);
  return {};
}

constexpr Law kLaws[] = {Law::kConcat, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "bins", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {.encode = [](const Head&, const EncodeInput&, std::uint8_t*, std::uint8_t*,
                                         bool&) { return std::size_t{0}; },
                            .decode = [](const Head&, std::span<const ByteView>, const Merge&,
                                         std::span<float>, std::uint8_t*) { return std::size_t{0}; }};

}  // namespace fft

const Codec fft_codec = {
    .name = "fft",
    .doc = "the strongest frequencies of blocks, as range-based floats (Wang et al. 2020)",
    .params = fft::kParams,
    .phases = fft::kPhases,
    .traits = {.fixed_size = true,
               .one_pass_feedback = false,
               .adds_transformed = true,
               .contraction = fft::contraction},
    .scratch = fft::scratch,
    .impls = fft::kImpls};

}  // namespace tithe
