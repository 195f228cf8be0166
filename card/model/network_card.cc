// SPDX-License-Identifier: Apache-2.0
#include "card/model/network_card.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tithe::card {
namespace {

using namespace inceptionn;

constexpr std::size_t kMaxValues = kMaxFrameBytes / 4;
constexpr std::size_t kMaxBlocks = (kMaxValues + kBlock - 1) / kBlock;
constexpr std::uint8_t kKind = 0x10;  // of a shim; bit 0: exact
constexpr std::uint8_t kLiteralBit = 0x80;

// The bytes of a burst payload before its groups. A packet has only groups; the codec's kernels use whole payloads.
std::size_t head_bytes(std::size_t n) { return kHead + 2 * blocks(n); }

// True if groups of n values and `tail` bytes fill `packet`. Stores the bytes of each group and of each block.
bool groups_fill(ByteView packet, std::size_t n, std::size_t tail, std::uint8_t* group_bytes,
                 std::uint16_t* block_bytes) {
  std::size_t at = 0;
  unsigned tags = 0;
  for (std::size_t first = 0; first < n; first += kGroup) {
    if (at + 2 > packet.size()) return false;
    tags = wire::get<std::uint16_t>(&packet[at]);
    const std::size_t bytes = inceptionn::group_bytes(tags);
    *group_bytes++ = static_cast<std::uint8_t>(bytes);
    if (first % kBlock == 0) block_bytes[first / kBlock] = 0;
    block_bytes[first / kBlock] = static_cast<std::uint16_t>(block_bytes[first / kBlock] + bytes);
    at += bytes;
  }
  return at + tail == packet.size() && (n % kGroup == 0 || tags >> (2 * (n % kGroup)) == 0);
}

}  // namespace

void Counters::count(Event event, std::size_t in, std::size_t out) {
  packed += event == Event::kPacked;
  inexact += event == Event::kInexact;
  grown += event == Event::kGrown;
  dropped += event == Event::kDropped;
  passed += event != Event::kPacked && event != Event::kDropped;
  bytes_in += in;
  bytes_out += out;
}

Card::Card(const Config& config, const Kernels& with)
    : config_(config),
      with_(with),
      classes_(classes(config.mode, config.b)),
      values_(kMaxValues),
      left_(kMaxValues),
      out_(kMaxHeaderBytes + kShim + bound({}, kMaxValues)),
      burst_(bound({}, kMaxValues)),
      group_bytes_(kMaxBlocks * (kBlock / kGroup)) {}

Outcome Card::pass(Direction direction, ByteView frame) {
  const Outcome outcome = direction == Direction::kToWire ? pack(frame) : unpack(frame);
  counters_[static_cast<std::size_t>(direction)].count(outcome.event, frame.size(), outcome.frame.size());
  return outcome;
}

// True if the card restores every value bit for bit, that is if all residuals are +0. A value that is sent as its 32
// bits is restored even if it is NaN, whose residual is NaN. -0 is sent as +0 and has the residual -0.
bool Card::round_trips(std::size_t n, bool finite) const {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= std::bit_cast<std::uint32_t>(left_[i]);
  if (any == 0 || finite) return any == 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values_[i]) & 0x7fffffffU;
    if (magnitude < classes_.top && std::bit_cast<std::uint32_t>(left_[i]) != 0) return false;
  }
  return true;
}

Outcome Card::pack(ByteView f) {
  const Config& c = config_;
  const auto h = headers(f);
  if (!c.on || !h || h->packed() || h->end > kMaxFrameBytes || h->dscp != c.dscp ||
      h->end - h->payload < c.least)
    return {Event::kPassed, f};
  if (h->end > f.size() || (!h->without_sum(f) && transport_sum(f, *h, h->protocol) != 0xffff))
    return {Event::kPassed, f};
  const ByteView payload = f.subspan(h->payload, h->end - h->payload);
  const std::size_t n = payload.size() / 4, tail = payload.size() % 4;
  std::memcpy(values_.data(), payload.data(), 4 * n);

  // The codec writes head and table into the memory that the last headers and the shim use later.
  const std::size_t groups_at = kMaxHeaderBytes + kShim;
  std::uint8_t* const groups = &out_[groups_at];
  const EncodeInput input{values_.data(), nullptr, c.exact ? left_.data() : nullptr, n};
  const Encoded encoded =
      with_.encode_burst({c.mode, kBurst, static_cast<std::uint8_t>(c.b)}, input, groups - head_bytes(n));
  const std::size_t group_bytes = encoded.bytes - head_bytes(n) + tail;
  if (group_bytes + kShim >= payload.size()) return {Event::kGrown, f};
  if (c.exact ? !round_trips(n, encoded.finite) : tail != 0) return {Event::kInexact, f};

  std::memcpy(groups + group_bytes - tail, payload.data() + 4 * n, tail);
  const Bytes out = Bytes(out_).subspan(groups_at - kShim - h->payload, h->payload + kShim + group_bytes);
  std::memcpy(out.data(), f.data(), h->payload);
  const Bytes shim = out.subspan(h->payload, kShim);
  shim[0] = static_cast<std::uint8_t>(kKind | (c.exact ? 1 : 0));
  shim[1] = static_cast<std::uint8_t>((c.mode == kLiteral ? kLiteralBit : 0) | c.b);
  set_word(shim, 2, payload.size());
  set_word(shim, 4, word(f, h->sum_at()));
  set_word(shim, 6, 0);
  mend(out, *h, h->udp ? kPackedUdp : kPackedTcp);
  return {Event::kPacked, out};
}

Outcome Card::unpack(ByteView f) {
  const auto h = headers(f);
  if (!config_.on || !h || !h->packed() || h->end > kMaxFrameBytes) return {Event::kPassed, f};
  const std::size_t bytes = word(f, h->payload + 2);
  if (bytes > kMaxFrameBytes) return {Event::kPassed, f};
  const Outcome dropped{Event::kDropped, {}};
  const bool exact = (f[h->payload] & 1) != 0;
  const int b = f[h->payload + 1] & ~kLiteralBit;
  if (h->end > f.size() || (!h->without_sum(f) && transport_sum(f, *h, h->protocol) != 0xffff) ||
      (f[h->payload] & 0xfe) != kKind || b < 1 || b > kMaxB || bytes == 0)
    return dropped;

  const ByteView packet = f.subspan(h->payload + kShim, h->end - h->payload - kShim);
  const std::size_t n = bytes / 4, tail = bytes % 4;
  std::array<std::uint16_t, kMaxBlocks> block_bytes;
  if (!groups_fill(packet, n, tail, group_bytes_.data(), block_bytes.data())) return dropped;
  const Bytes out = Bytes(out_).first(h->payload + bytes);
  std::memcpy(out.data(), f.data(), h->payload);
  if (n > 0) {
    const std::size_t groups = packet.size() - tail;
    burst_[0] = (f[h->payload + 1] & kLiteralBit) != 0 ? kLiteral : kStrict;
    burst_[1] = kBurst;
    burst_[2] = static_cast<std::uint8_t>(b);
    burst_[3] = 0;
    for (std::size_t k = 0; k < blocks(n); ++k) wire::put(&burst_[kHead + 2 * k], block_bytes[k]);
    std::memcpy(&burst_[head_bytes(n)], packet.data(), groups);
    const ByteView burst = ByteView(burst_).first(head_bytes(n) + groups);
    with_.decode_burst({&burst, 1}, {}, std::span(values_).first(n), group_bytes_.data());
    std::memcpy(&out[h->payload], values_.data(), 4 * n);
  }
  std::memcpy(&out[h->payload + 4 * n], packet.data() + packet.size() - tail, tail);
  mend(out, *h, h->udp ? kUdp : kTcp);
  if (exact) set_word(out, h->sum_at(), word(f, h->payload + 4));
  return {Event::kPacked, out};
}

}  // namespace tithe::card
