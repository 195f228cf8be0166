// SPDX-License-Identifier: Apache-2.0
// sign_majority: all ranks vote on the sign of each value, and the majority's sign arrives (signSGD with majority vote,
// J. Bernstein et al., ICML 2018).
//
// Published for a server that counts single bits and answers with single bits. Here the counts themselves add up on the
// way, in any strategy, and nobody decides: phase 0 sums how many voted minus; then every rank knows each majority M,
// +1, -1, or 0 for a tie, and phase 1 sums one size per block. The outcome of a vote is no sum of what was voted. But
// the way it is cut here, each rank sends size * M, so payloads still add up, taken == sent + left, and a rank that was
// outvoted keeps the difference in its residual.
// A rank's size is that of its own values along M, sum(v M) / sum(M M): the nearest multiple of M, so that whatever the
// others voted |x - C(x)| <= |x|. Alone it is the mean magnitude, as in sign. Published: the same size for all; that is
// scale=...,feedback=none.
//
// Layout   phase 0 (sum): u8 bits of a count | u8 voters, 1 .. 2^bits - 1 | n counts of minus, each <= voters, packed
//                         without gaps, the lowest bit first, 0 behind the last one
//          phase 1 (sum): f32 size per block of kBlock values (the last one may be shorter)
// Payloads of phase 0 add up as one long number: no count grows beyond its bits.
#include <string>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/block.h"
#include "codec/codes.h"
#include "codec/registry.h"

namespace tithe {
namespace sign_majority {
namespace {

enum Param : std::size_t { kVoters, kScale };

constexpr std::size_t kBlock = 2048;
constexpr std::size_t kHead = 2;

unsigned bits_of(const Settings& s) { return static_cast<unsigned>(s[kVoters]) + 1; }
unsigned most_voters(const Settings& s) { return (1U << bits_of(s)) - 1; }

std::size_t bound_votes(const Settings& s, std::size_t n) { return kHead + codes::bytes_for(n, bits_of(s)); }
std::size_t bound_sizes(const Settings&, std::size_t n) { return (n + kBlock - 1) / kBlock * 4; }

Status check_votes(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("sign_majority", payload.size(), bound_votes(s, n)));
  const unsigned bits = bits_of(s);
  const unsigned voters = payload[1];
  if (payload[0] != bits || voters == 0 || voters > most_voters(s))
    return {Code::kCorrupt, "sign_majority: other counts, or another number of voters"};
  const std::uint8_t* counts = payload.data() + kHead;
  if (!codes::ends_clean(counts, n, bits))
    return {Code::kCorrupt, "sign_majority: a bit past the last count"};
  for (std::size_t i = 0; i < n; ++i)
    if (codes::get(counts, i, bits) > voters)
      return {Code::kCorrupt, "sign_majority: more votes than voters"};
  return {};
}

Status check_sizes(const Settings& s, std::size_t n, ByteView payload) {
  return codec::check_size("sign_majority", payload.size(), bound_sizes(s, n));
}

// Of value i: 1, -1, or 0 for a tie.
float majority(ByteView votes, std::size_t i) {
  const unsigned voters = votes[1];
  const unsigned minus = codes::get(votes.data() + kHead, i, votes[0]);
  return 2 * minus < voters ? 1.0F : 2 * minus > voters ? -1.0F : 0.0F;
}

bool vote(const Call& call, const Carry& in, std::uint8_t* out) {
  const unsigned bits = bits_of(call.settings);
  std::fill_n(out, bound_votes(call.settings, in.n), std::uint8_t{0});
  out[0] = static_cast<std::uint8_t>(bits);
  out[1] = 1;
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    codes::put(out + kHead, i, bits, v < 0.0F ? 1U : 0U);
  }
  return finite;
}

// This rank's size for a block: what its values are along M, in the mean. In binary64: equal magnitudes have their own
// as mean, exactly. No further from any value than a float can say.
float size_of(ByteView votes, const Carry& in, std::size_t first, std::size_t len) {
  Fold<double> sum;
  double low = 0, high = 0;
  unsigned decided = 0;
  for (std::size_t i = 0; i < len; ++i) {
    const float m = majority(votes, first + i);
    const double along = double{in.take(first + i)} * double{m};
    sum.add(i, along);
    low = std::min(low, along);
    high = std::max(high, along);
    decided += m != 0.0F;
  }
  constexpr double kMost = std::numeric_limits<float>::max();
  return decided == 0 ? 0.0F
                      : static_cast<float>(std::clamp(sum.total() / decided, high - kMost, low + kMost));
}

bool send_sizes(const Call& call, const Carry& in, std::uint8_t* out) {
  const auto given = static_cast<float>(call.settings[kScale]);
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) finite = finite && is_finite(in.take(i));
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const std::size_t len = std::min(kBlock, in.n - first);
    const float size = !finite ? 0.0F : given > 0.0F ? given : size_of(call.context, in, first, len);
    wire::put(out + first / kBlock * 4, size);
    for (std::size_t i = first; i < first + len; ++i) in.leave(i, size * majority(call.context, i));
  }
  return finite;
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  const std::size_t bytes = sign_majority_codec.phases[call.phase].bound(call.settings, in.n);
  TITHE_TRY(codec::check_room("sign_majority", out.size(), bytes));
  return Encoded{bytes, call.phase == 0 ? vote(call, in, out.data()) : send_sizes(call, in, out.data())};
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [votes = call.context](ByteView p, std::size_t i) {
    return wire::get<float>(&p[i / kBlock * 4]) * majority(votes, i);
  });
}

Status add_votes(const Settings& s, std::size_t, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("sign_majority", in.size(), acc.size()));
  const unsigned voters = unsigned{acc[1]} + in[1];
  if (voters > most_voters(s))
    return {Code::kUnsupported, "sign_majority: more ranks than voters=" + std::to_string(most_voters(s))};
  acc[1] = static_cast<std::uint8_t>(voters);
  unsigned carry = 0;
  for (std::size_t at = kHead; at < acc.size(); ++at) {
    carry += unsigned{acc[at]} + in[at];
    acc[at] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
  return {};
}

Status add_sizes(const Settings&, std::size_t, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("sign_majority", in.size(), acc.size()));
  for (std::size_t at = 0; at < acc.size(); at += 4)
    wire::put(&acc[at], wire::get<float>(&acc[at]) + wire::get<float>(&in[at]));
  return {};
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kScale] > 0) return std::numeric_limits<double>::infinity();
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, kBlock)) + 0x1p-20;
}

constexpr std::string_view kMostVoters[] = {"1", "3", "7", "15", "31", "63", "127", "255"};
constexpr ParamSpec kParams[] = {
    {"voters", 4, 0, 7, "most ranks that may vote; its bits are those that a value takes", kMostVoters},
    {"scale", 0, 0, 1e30, "what the majority's sign stands for; 0 = each rank's values along it, per 2048"}};
constexpr Law kLaws[] = {Law::kSum};
constexpr Phase kPhases[] = {
    {.name = "votes", .laws = kLaws, .bound = bound_votes, .check = check_votes, .combine = add_votes},
    {.name = "sizes", .laws = kLaws, .bound = bound_sizes, .check = check_sizes, .combine = add_sizes}};
constexpr Impl kImpls[] = {{.name = "ref",
                            .usable = codec::always,
                            .encode = encode,
                            .decode = block::decode<sign_majority_codec, decode>}};

}  // namespace
}  // namespace sign_majority

const Codec sign_majority_codec = {.id = CodecId::sign_majority,
                                   .name = "sign_majority",
                                   .doc = "the sign that most ranks vote for (Bernstein et al. 2018)",
                                   .params = sign_majority::kParams,
                                   .phases = sign_majority::kPhases,
                                   .traits = {.fixed_size = true, .contraction = sign_majority::contraction},
                                   .scratch = codec::no_scratch,
                                   .impls = sign_majority::kImpls};

}  // namespace tithe
