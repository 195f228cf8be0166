// SPDX-License-Identifier: Apache-2.0
#include "codec/rangefloat/rangefloat.h"

#include <string>

#include "codec/shared/common/block.h"

namespace tithe {
namespace rangefloat {
namespace {

enum Param : std::size_t { kBits, kMantissa, kRange };
constexpr ParamSpec kParams[] = {
    whole_number({"bits", 8, kMinBits, kMaxBits, "bits per value, N"}),
    whole_number({"mantissa", 0, 0, kMaxBits - 2,
                  "mantissa bits, below N - 1; 0 = those with the least error on a sample"}),
    {"range", 0, 0, 1e38, "largest magnitude; 0 = each block of 1024 values has its own"}};

int bits_of(const Settings& s) { return static_cast<int>(s[kBits]); }
std::size_t bound(const Settings& s, std::size_t n) { return bytes(bits_of(s), n); }
std::uint32_t given_range(const Settings& s) { return magnitude(static_cast<float>(s[kRange])); }

Head head_of(ByteView payload) { return {payload[0], payload[1]}; }

// ---- Choice of m

// The largest magnitude of values [first, end), as bits.
std::uint32_t largest_of(const EncodeInput& in, std::size_t first, std::size_t end) {
  std::uint32_t largest = 0;
  for (std::size_t i = first; i < end; ++i) largest = std::max(largest, magnitude(in.value(i)));
  return largest;
}

// Tries each m on the first 256 values of four evenly spaced blocks, each with its own range unless one is given.
double error_on_sample(const Head& head, std::uint32_t given, const EncodeInput& in) {
  constexpr std::size_t kPieces = 4;
  constexpr std::size_t kPiece = 256;
  const std::size_t blocks = (in.n + kBlock - 1) / kBlock;
  double error = 0;
  for (std::size_t k = 0; k < std::min(kPieces, blocks); ++k) {
    const std::size_t first = blocks * k / std::min(kPieces, blocks) * kBlock;
    const std::size_t end = std::min(first + kPiece, in.n);
    const Codes codes = Codes::ending_at(head, given ? given : largest_of(in, first, end));
    for (std::size_t i = first; i < end; ++i) {
      const float v = in.value(i);
      const double off = double{v} - double{codes.unpack(codes.pack(v))};
      error += off * off;
    }
  }
  return error;
}

Head choose(const Settings& s, const EncodeInput& in) {
  const int bits = bits_of(s);
  if (s[kMantissa] >= 1) return {bits, std::min(static_cast<int>(s[kMantissa]), bits - 2)};
  Head best{bits, 1};
  double least = error_on_sample(best, given_range(s), in);
  for (int m = 2; m <= bits - 2; ++m) {
    const double error = error_on_sample({bits, m}, given_range(s), in);
    if (error < least) {
      best.mantissa = m;
      least = error;
    }
  }
  return best;
}

// ---- The reference

bool encode_ref(const Head& head, std::uint32_t largest, const EncodeInput& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput block = block::part(in, first, std::min(kBlock, in.n - first));
    finite =
        encode_block(head, largest, block, out + first / kBlock * block_bytes(head.bits, kBlock)) && finite;
  }
  return finite;
}

Status check(const Call&, std::size_t n, ByteView payload) {
  const auto corrupt = [](const char* why) {
    return Status(Code::kCorrupt, std::string("rangefloat: ") + why);
  };
  if (payload.size() < kHead) return corrupt("no head");
  const Head head = head_of(payload);
  if (!range::is_head(head) || payload[2] != 0 || payload[3] != 0)
    return corrupt("bits and mantissa form no valid float");
  TITHE_TRY(codec::check_size("rangefloat", payload.size(), bytes(head.bits, n)));
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::uint8_t* block = payload.data() + kHead + first / kBlock * block_bytes(head.bits, kBlock);
    if (!range::is_base(head, wire::get<std::uint32_t>(block))) return corrupt("an invalid range");
    if (!bit_packing::ends_clean(block + kBlockHead, std::min(kBlock, n - first), head.width()))
      return corrupt("a bit past the last code");
  }
  return {};
}

void decode_ref(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, value_at);
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const Settings& s = call.settings;
  TITHE_TRY(codec::check_room("rangefloat", out.size(), bound(s, in.n)));
  const Head head = choose(s, in);
  out[0] = static_cast<std::uint8_t>(head.bits);
  out[1] = static_cast<std::uint8_t>(head.mantissa);
  out[2] = out[3] = 0;
  const auto body = head.bits == 8 ? kWith.encode : encode_ref;
  const bool finite = body(head, given_range(s), in, out.data() + kHead);
  return Encoded{bound(s, in.n), finite};
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  const bool of_bytes =
      std::all_of(payloads.begin(), payloads.end(), [](ByteView p) { return head_of(p).bits == 8; });
  const auto body = of_bytes ? kWith.decode : decode_ref;
  body(payloads, how, out);
  return {};
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "codes", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

bool encode_block(const Head& head, std::uint32_t largest, const EncodeInput& in, std::uint8_t* out) {
  const std::uint32_t own = largest_of(in, 0, in.n);
  const Codes codes = Codes::ending_at(head, largest ? largest : own);
  wire::put(out, codes.base);
  std::uint8_t* at = out + kBlockHead;
  std::fill(at, out + block_bytes(head.bits, in.n), std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) {
    const std::uint32_t code = codes.pack(in.value(i));
    bit_packing::put(at, i, head.width(), code);
    in.store_residual(i, codes.unpack(code));
  }
  return own <= kLargest;
}

float value_at(ByteView payload, std::size_t i) {
  const Head head = head_of(payload);
  const std::uint8_t* block = payload.data() + kHead + i / kBlock * block_bytes(head.bits, kBlock);
  const Codes codes = Codes::of(head, wire::get<std::uint32_t>(block));
  return codes.unpack(bit_packing::get(block + kBlockHead, i % kBlock, head.width()));
}

const Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace rangefloat

// No contraction: a bound for every m would be 0.94, far above the loss of the chosen m.
const Codec rangefloat_codec = {
    .name = "rangefloat",
    .doc = "floats of N bits whose codes all lie within the values' range (Wang et al. 2020)",
    .params = rangefloat::kParams,
    .phases = rangefloat::kPhases,
    .traits = {.fixed_size = true},
    .scratch = codec::no_scratch,
    .impls = rangefloat::kImpls};

}  // namespace tithe
