// SPDX-License-Identifier: Apache-2.0
#include "codec/sign_majority/sign_majority.h"

#include <cstring>
#include <string>

#include "codec/shared/common/float_sums.h"

namespace tithe {
namespace sign_majority {
namespace {

unsigned max_voters(const Settings& s) { return (1U << bits_of(s)) - 1; }

std::size_t bound_votes(const Settings& s, std::size_t n) {
  return kHead + bit_packing::bytes_for(n, bits_of(s));
}
std::size_t bound_scales(const Settings&, std::size_t n) { return (n + kBlock - 1) / kBlock * 4; }

// For a `most` of all ones: whether no count has a bit above it. Eight counts take whole bytes.
bool none_above_ones(ByteView counts, unsigned bits, unsigned most) {
  std::uint8_t above[8 * 8] = {};  // of 64 counts
  for (std::size_t i = 0; i < 64; ++i) bit_packing::put(above, i, bits, ((1U << bits) - 1) & ~most);
  std::uint64_t found = 0;
  std::size_t at = 0;
  for (; at + 8 * bits <= counts.size(); at += 8 * bits)
    for (std::size_t k = 0; k < 8 * bits; k += 8)
      found |= wire::get<std::uint64_t>(&counts[at + k]) & wire::get<std::uint64_t>(above + k);
  for (std::size_t k = 0; at < counts.size(); ++at, ++k) found |= counts[at] & above[k];
  return found == 0;
}

unsigned largest_count(ByteView counts, std::size_t n, unsigned bits) {
  std::uint8_t most[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint8_t each[8];
    const std::uint64_t eight = bit_packing::get8(counts.data(), counts.size(), i, bits);
    std::memcpy(each, &eight, 8);
    for (std::size_t k = 0; k < 8; ++k) most[k] = std::max(most[k], each[k]);
  }
  unsigned found = *std::max_element(most, most + 8);
  for (; i < n; ++i) found = std::max(found, bit_packing::get(counts.data(), i, bits));
  return found;
}

Status check_votes(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("sign_majority", payload.size(), bound_votes(call.settings, n)));
  const unsigned bits = bits_of(call.settings);
  const unsigned voters = payload[1];
  if (payload[0] != bits || voters == 0 || voters > max_voters(call.settings))
    return {Code::kCorrupt, "sign_majority: counts or number of voters differ"};
  const ByteView counts = payload.subspan(kHead);
  if (!bit_packing::ends_clean(counts.data(), n, bits))
    return {Code::kCorrupt, "sign_majority: a bit past the last count"};
  const bool all_ones = (voters & (voters + 1)) == 0;
  if (all_ones ? !none_above_ones(counts, bits, voters) : largest_count(counts, n, bits) > voters)
    return {Code::kCorrupt, "sign_majority: more votes than voters"};
  return {};
}

Status check_scales(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("sign_majority", payload.size(), bound_scales(call.settings, n)));
  for (std::size_t at = 0; at < payload.size(); at += 4)
    if (!is_finite(wire::get<float>(&payload[at])))
      return {Code::kCorrupt, "sign_majority: a scale that is not finite"};
  return {};
}

bool vote_ref(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  std::fill_n(out, bound_votes(call.settings, in.n), std::uint8_t{0});
  put_head(bits_of(call.settings), out);
  return vote_from(0, bits_of(call.settings), in, out);
}

// A block with a non-finite value has scale 0.
bool send_scales_ref(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput values = block::part(in, first, std::min(kBlock, in.n - first));
    Along along;
    for (std::size_t i = 0; i < values.n; ++i)
      along.see(i, values.value(i), majority(call.context, first + i));
    finite = finite && along.finite;
    const float scale = along.scale(fixed_scale(call));
    wire::put(out + first / kBlock * 4, scale);
    for (std::size_t i = 0; i < values.n; ++i)
      values.store_residual(i, scale * majority(call.context, first + i));
  }
  return finite;
}

void decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                std::span<float> out) {
  decode_from(0, call.context, payloads, how, out);
}

constexpr codec::Check check = codec::by_phase<check_votes, check_scales>;

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const std::size_t bytes = sign_majority_codec.phases[call.phase].bound(call.settings, in.n);
  TITHE_TRY(codec::check_room("sign_majority", out.size(), bytes));
  const auto body = call.phase == 0 ? kWith.vote : kWith.send_scales;
  return Encoded{bytes, body(call, in, out.data())};
}

// Adds the packed counts as one long integer with a carry between words. No count overflows, because `voters` limits
// each one, so the carries stay within a count.
Result<Combined> add_votes(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("sign_majority", acc.size(), bound_votes(call.settings, n)));
  TITHE_TRY(check_votes(call, n, in));
  const unsigned voters = unsigned{acc[1]} + in[1];
  TITHE_TRY(codec::check_ranks("sign_majority", call, voters));
  if (voters > max_voters(call.settings))
    return Status(Code::kUnsupported,
                  "sign_majority: more ranks than voters=" + std::to_string(max_voters(call.settings)));
  acc[1] = static_cast<std::uint8_t>(voters);
  std::size_t at = kHead;
  std::uint64_t carry = 0;
  for (; at + 8 <= acc.size(); at += 8) {
    const auto mine = wire::get<std::uint64_t>(&acc[at]);
    const std::uint64_t both = mine + wire::get<std::uint64_t>(&in[at]);
    wire::put(&acc[at], both + carry);
    carry = std::uint64_t{both < mine} | std::uint64_t{both + carry < both};
  }
  for (; at < acc.size(); ++at) {
    carry += std::uint64_t{acc[at]} + in[at];
    acc[at] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
  return Combined{};
}

Result<Combined> add_scales(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(check_scales(call, n, acc));
  TITHE_TRY(check_scales(call, n, in));
  return Combined{sums::add(acc, in)};
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kScale] > 0) return std::numeric_limits<double>::infinity();
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, kBlock)) + 0x1p-20;
}

constexpr std::string_view kMaxVoters[] = {"1", "3", "7", "15", "31", "63", "127", "255"};
constexpr ParamSpec kParams[] = {
    {"voters", 4, 0, 7, "largest number of voting ranks; a value takes as many bits as this number has",
     kMaxVoters},
    {"scale", 0, 0, 1e30,
     "magnitude of the majority's sign; 0 = each rank's mean along it, per 2048 values"}};
constexpr Law kLaws[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "votes", .laws = kLaws, .bound = bound_votes},
                             {.name = "scales", .laws = kLaws, .bound = bound_scales}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>,
                        .decode = codec::decode<check, kWith>,
                        .check = check,
                        .combine = codec::by_phase<add_votes, add_scales>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {.vote = vote_ref, .send_scales = send_scales_ref, .decode = decode_ref};

}  // namespace sign_majority

const Codec sign_majority_codec = {
    .name = "sign_majority",
    .doc = "the sign that most ranks vote for (Bernstein et al. 2018)",
    .params = sign_majority::kParams,
    .phases = sign_majority::kPhases,
    .traits = {.fixed_size = true, .votes = true, .contraction = sign_majority::contraction},
    .scratch = codec::no_scratch,
    .impls = sign_majority::kImpls};

}  // namespace tithe
