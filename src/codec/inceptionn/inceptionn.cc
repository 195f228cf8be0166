// SPDX-License-Identifier: Apache-2.0
#include "codec/inceptionn/inceptionn.h"

#include <bit>
#include <cmath>
#include <string>

#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/typical.h"

namespace tithe {
namespace inceptionn {
namespace {

enum Param : std::size_t { kBoundParam, kModeParam, kLayoutParam };
constexpr std::string_view kModes[] = {"strict", "literal"};
constexpr std::string_view kLayouts[] = {"split", "burst"};
constexpr ParamSpec kParams[] = {
    {"bound", 0x1p-10, 0x1p-100, 0.5, "largest absolute error of a value; rounded down to a power of two"},
    {"mode", 0, 0, 1, "strict keeps the bound; literal follows the paper: its 7-bit class errs by up to 2^-7",
     kModes},
    {"layout", 0, 0, 1,
     "split: tags apart, for processors; burst: a tag vector per 8 values, for network cards", kLayouts}};

Head head_of(const Settings& s) {
  return {.mode = s[kModeParam] == 0 ? kStrict : kLiteral,
          .layout = s[kLayoutParam] == 0 ? kSplit : kBurst,
          .b = static_cast<std::uint8_t>(-std::ilogb(s[kBoundParam]))};
}

// Models values as normal with the typical deviation, plus the previous rounds' residuals, uniform below the bound.
std::size_t typical(const Settings& s, std::size_t n) {
  const Head head = head_of(s);
  const Classes c = classes(head);
  const double bound = std::ldexp(1.0, -head.b);
  const double deviation = std::sqrt(codec::kDefaultDeviation * codec::kDefaultDeviation + bound * bound / 3);
  const auto beyond = [&](std::uint32_t edge) {
    return std::erfc(static_cast<double>(std::bit_cast<float>(edge)) / (deviation * std::sqrt(2.0)));
  };
  // 0, 1, 2 and 4 bytes: one more from `low` on, one more from `middle` on, two more from `top` on.
  const double each = beyond(c.low) + beyond(c.middle) + 2 * beyond(c.top);
  const std::size_t heads = kHead + 2 * plane_bytes(n) + (head.layout == kBurst ? 2 * blocks(n) : 0);
  return heads + static_cast<std::size_t>(each * static_cast<double>(n));
}

// The head of a payload that has been checked.
Head head_of(ByteView payload) {
  return {static_cast<Mode>(payload[0]), static_cast<Layout>(payload[1]), payload[2]};
}

// ---- Checks

std::size_t value_bytes(const std::uint8_t* low, const std::uint8_t* high, std::size_t plane) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 8 * plane; ++i) bytes += kTagBytes[bit_at(low, i) | bit_at(high, i) << 1];
  return bytes;
}

// Bytes of a split payload, from its tags. The payload must hold both planes.
std::size_t split_bytes(const Kernels& with, std::size_t n, ByteView payload) {
  const Split split(payload.data(), n);
  return kHead + 2 * plane_bytes(n) + with.value_bytes(split.low, split.high, plane_bytes(n));
}

bool split_holds(const Kernels& with, std::size_t n, ByteView payload) {
  const Split split(payload.data(), n);
  return payload.size() == split_bytes(with, n, payload) &&
         (n % 8 == 0 || (split.low[n / 8] >> (n % 8) == 0 && split.high[n / 8] >> (n % 8) == 0));
}

// kYes: check records the bytes of each group of a burst payload, so that decode need not find them again.
enum class List { kNo, kYes };
constexpr std::size_t kGroups = kBlock / kGroup;

// Several blocks are walked together, to hide the latency of loading each group's tags.
template <std::size_t kAtOnce>
using Begins = std::array<std::size_t, kAtOnce + 1>;  // offsets of consecutive blocks, and of their end

// True if `groups` groups fill each block exactly. Sets `last` to the tags read last, `lengths` to the bytes of the
// groups.
template <List kList, std::size_t kAtOnce>
bool groups_fill(ByteView payload, const Begins<kAtOnce>& begin, std::size_t groups, unsigned& last,
                 std::uint8_t* lengths) {
  Begins<kAtOnce> at = begin;
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      if (at[k] + 2 > begin[k + 1]) return false;
      last = wire::get<std::uint16_t>(&payload[at[k]]);
      const std::size_t bytes = group_bytes(last);
      if (kList == List::kYes) lengths[k * kGroups + g] = static_cast<std::uint8_t>(bytes);
      at[k] += bytes;
    }
  return std::equal(at.begin(), at.end() - 1, begin.begin() + 1);
}

// Likewise for full blocks at such a distance from the payload's end that no tags can lead past it.
template <List kList, std::size_t kAtOnce>
bool groups_fill_far_from_end(ByteView payload, const Begins<kAtOnce>& begin, std::uint8_t* lengths) {
  std::array<const std::uint8_t*, kAtOnce> at;
  for (std::size_t k = 0; k < kAtOnce; ++k) at[k] = payload.data() + begin[k];
  const std::uint8_t* const ahead = payload.data() + begin[kAtOnce];
  const std::size_t remaining = payload.size() - begin[kAtOnce];
  for (std::size_t g = 0; g < kGroups; ++g) {
    __builtin_prefetch(ahead +
                       std::min(64 * g, remaining));  // memory foresees no blocks that are read in turn
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const unsigned bytes = 2U + kQuadBytes[at[k][0]] + kQuadBytes[at[k][1]];
      if (kList == List::kYes) lengths[k * kGroups + g] = static_cast<std::uint8_t>(bytes);
      at[k] += bytes;
    }
  }
  bool fill = true;
  for (std::size_t k = 0; k < kAtOnce; ++k) fill = fill && at[k] == payload.data() + begin[k + 1];
  return fill;
}

template <List kList>
bool burst_holds(std::size_t n, ByteView payload, std::uint8_t* lengths) {
  constexpr std::size_t kAtOnce = 8;
  std::size_t at = kHead + 2 * blocks(n);  // inside the payload: check has required more bytes
  const auto end_of = [&](std::size_t block) {
    return at += wire::get<std::uint16_t>(&payload[kHead + 2 * block]);
  };
  unsigned last = 0;
  for (std::size_t b = 0; b < blocks(n);) {
    if ((b + kAtOnce) * kBlock <= n) {
      Begins<kAtOnce> begin{at};
      for (std::size_t k = 0; k < kAtOnce; ++k) begin[k + 1] = end_of(b + k);
      if (at > payload.size()) return false;
      const bool is_far = payload.size() - begin[kAtOnce - 1] >= kMaxBlockBytes;
      std::uint8_t* list = kList == List::kYes ? lengths + b * kGroups : nullptr;
      if (!(is_far ? groups_fill_far_from_end<kList, kAtOnce>(payload, begin, list)
                   : groups_fill<kList, kAtOnce>(payload, begin, kGroups, last, list)))
        return false;
      b += kAtOnce;
    } else {
      const Begins<1> begin{at, end_of(b)};
      if (at > payload.size()) return false;
      const std::size_t groups = (std::min(kBlock, n - b * kBlock) + kGroup - 1) / kGroup;
      std::uint8_t* list = kList == List::kYes ? lengths + b * kGroups : nullptr;
      if (!groups_fill<kList, 1>(payload, begin, groups, last, list)) return false;
      ++b;
    }
  }
  return at == payload.size() && (n % 8 == 0 || last >> (2 * (n % 8)) == 0);
}

template <List kList>
Status check_as(const Kernels& with, std::size_t n, ByteView payload, std::uint8_t* lengths) {
  const auto corrupt = [](const char* why) {
    return Status(Code::kCorrupt, std::string("inceptionn: ") + why);
  };
  if (payload.size() < kHead + 2 * plane_bytes(n)) return corrupt("no room for the tags");
  if (payload[0] > kLiteral || payload[1] > kBurst || payload[3] != 0)
    return corrupt("unknown mode or layout");
  const Head head = head_of(payload);
  if (head.b < 1 || head.b > kMaxB) return corrupt("no bound");
  if (!(head.layout == kSplit ? split_holds(with, n, payload) : burst_holds<kList>(n, payload, lengths)))
    return corrupt("tags and bytes do not fit");
  return {};
}

template <const Kernels& kWith>
Status check(const Call&, std::size_t n, ByteView payload) {
  return check_as<List::kNo>(kWith, n, payload, nullptr);
}

// Scratch: the bytes of each group of one burst payload.
std::size_t scratch(const Settings& s, std::size_t n) {
  return head_of(s).layout == kBurst ? blocks(n) * kGroups : 0;
}

// ---- The reference

Encoded encode_split(const Head& head, const EncodeInput& in, std::uint8_t* out) {
  const Classes c = classes(head);
  const std::size_t plane = plane_bytes(in.n);
  std::uint8_t* low = out + kHead;
  std::uint8_t* high = low + plane;
  std::uint8_t* at = high + plane;
  std::fill(low, at, std::uint8_t{0});
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const std::size_t end = std::min(first + kBlock, in.n);
    std::size_t bytes[4] = {};  // by tag
    for (std::size_t i = first; i < end; ++i) {
      const float v = in.value(i);
      finite = finite && is_finite(v);
      const unsigned tag = send(c, v).tag;
      low[i / 8] = static_cast<std::uint8_t>(low[i / 8] | (tag & 1U) << (i % 8));
      high[i / 8] = static_cast<std::uint8_t>(high[i / 8] | (tag >> 1) << (i % 8));
      bytes[tag] += kTagBytes[tag];
    }
    std::uint8_t* next[4] = {at, at, at + bytes[1], at + bytes[1] + bytes[2]};
    for (std::size_t i = first; i < end; ++i) {
      const CodedValue s = send(c, in.value(i));
      put_bytes(next[s.tag], s.tag, s.word);
      next[s.tag] += kTagBytes[s.tag];
      in.store_residual(i, s.value);
    }
    at = next[3];
  }
  return {static_cast<std::size_t>(at - out), finite};
}

Encoded encode_burst(const Head& head, const EncodeInput& in, std::uint8_t* out) {
  const Classes c = classes(head);
  std::uint8_t* at = out + kHead + 2 * blocks(in.n);
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput to_end{in.grad, in.residual, in.residual_out, std::min(first + kBlock, in.n)};
    const Encoded block = encode_groups(c, to_end, first, at);
    wire::put(out + kHead + 2 * (first / kBlock), static_cast<std::uint16_t>(block.bytes));
    at += block.bytes;
    finite = finite && block.finite;
  }
  return {static_cast<std::size_t>(at - out), finite};
}

// Calls use(i, value) for every value of a payload, in order.
template <typename Use>
void each_split(ByteView payload, std::size_t n, Use use) {
  const Classes c = classes(head_of(payload));
  const Split split(payload.data(), n);
  const std::uint8_t* at = split.values;
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t end = std::min(first + kBlock, n);
    std::size_t bytes[4] = {};
    for (std::size_t i = first; i < end; ++i) bytes[split.tag(i)] += kTagBytes[split.tag(i)];
    const std::uint8_t* next[4] = {at, at, at + bytes[1], at + bytes[1] + bytes[2]};
    for (std::size_t i = first; i < end; ++i) {
      const unsigned tag = split.tag(i);
      use(i, receive(c, tag, next[tag]));
      next[tag] += kTagBytes[tag];
    }
    at = next[3];
  }
}

template <typename Use>
void each_burst(ByteView payload, std::size_t n, Use use) {
  const Classes c = classes(head_of(payload));
  const std::uint8_t* at = payload.data() + kHead + 2 * blocks(n);
  for (std::size_t first = 0; first < n; first += kGroup) {
    unsigned tags = wire::get<std::uint16_t>(at);
    at += 2;
    for (std::size_t i = first; i < std::min(first + kGroup, n); ++i, tags >>= 2) {
      const unsigned tag = tags & 3U;
      use(i, receive(c, tag, at));
      at += kTagBytes[tag];
    }
  }
}

// One payload after another, since the offset of a value depends on all values before it.
void merge_in_turn(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  if (how.base && how.base != out.data()) std::copy_n(how.base, out.size(), out.begin());
  if (!how.base && payloads.empty()) std::fill(out.begin(), out.end(), 0.0F);
  bool sets = how.base == nullptr;
  for (const ByteView p : payloads) {
    const auto use = [&](std::size_t i, float v) { out[i] = sets ? v : out[i] + v; };
    if (head_of(p).layout == kSplit)
      each_split(p, out.size(), use);
    else
      each_burst(p, out.size(), use);
    sets = false;
  }
  codec::end_sum(how, out);
}

// ---- The functions of Impl

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("inceptionn", out.size(), bound(call.settings, in.n)));
  const Head head = head_of(call.settings);
  out[0] = head.mode;
  out[1] = head.layout;
  out[2] = head.b;
  out[3] = 0;
  const auto body = head.layout == kSplit ? kWith.encode_split : kWith.encode_burst;
  return body(head, in, out.data());
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  std::uint8_t* lengths = nullptr;
  if (payloads.size() == 1 && call.scratch.size() >= blocks(out.size()) * kGroups) {
    lengths = call.scratch.data();
    TITHE_TRY(check_as<List::kYes>(kWith, out.size(), payloads[0], lengths));
  } else {
    TITHE_TRY(codec::check_all(check<kWith>, call, payloads, out.size()));
  }
  const auto all = [&](Layout layout) {
    return std::all_of(payloads.begin(), payloads.end(),
                       [layout](ByteView p) { return head_of(p).layout == layout; });
  };
  if (payloads.empty() || (!all(kSplit) && !all(kBurst)))  // no job mixes them
    merge_in_turn(payloads, how, out);
  else
    all(kSplit) ? kWith.decode_split(payloads, how, out) : kWith.decode_burst(payloads, how, out, lengths);
  return {};
}

double error(const Settings& s, double, double) {
  const Head head = head_of(s);
  const double bound = std::ldexp(1.0, -head.b);
  return head.mode == kStrict ? bound : std::max(bound, 0x1p-7);
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "classes", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check<kWith>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {
    .value_bytes = value_bytes,
    .encode_split = encode_split,
    .encode_burst = encode_burst,
    .decode_split = merge_in_turn,
    .decode_burst = [](std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                       const std::uint8_t*) { merge_in_turn(payloads, how, out); }};

// A group is its tags, then its values' bytes; the tags are known only after the last value, so they are written
// last.
Encoded encode_groups(const Classes& c, const EncodeInput& in, std::size_t first, std::uint8_t* to) {
  std::uint8_t* at = to;
  bool finite = true;
  for (; first < in.n; first += kGroup) {
    std::uint8_t* tags_at = at;
    unsigned tags = 0;
    at += 2;
    for (std::size_t i = first; i < std::min(first + kGroup, in.n); ++i) {
      const float v = in.value(i);
      finite = finite && is_finite(v);
      const CodedValue s = send(c, v);
      tags |= s.tag << (2 * (i - first));
      put_bytes(at, s.tag, s.word);
      at += kTagBytes[s.tag];
      in.store_residual(i, s.value);
    }
    wire::put(tags_at, static_cast<std::uint16_t>(tags));
  }
  return {static_cast<std::size_t>(at - to), finite};
}

}  // namespace inceptionn

const Codec inceptionn_codec = {
    .name = "inceptionn",
    .doc = "0, 8, 16 or 32 bits by a value's size, within an error bound (Li et al. 2018)",
    .params = inceptionn::kParams,
    .phases = inceptionn::kPhases,
    // No contraction below 1: values below the bound are not sent.
    .traits = {.exact_ledger = true, .error = inceptionn::error},
    .scratch = inceptionn::scratch,
    .impls = inceptionn::kImpls};

std::size_t inceptionn_typical(const Settings& s, std::size_t n) { return inceptionn::typical(s, n); }

}  // namespace tithe
