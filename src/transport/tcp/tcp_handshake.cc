// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_handshake.h"

#include <algorithm>

#include "base/bytes.h"

namespace tithe::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x43545454;  // "TTTC" in file order
constexpr std::uint8_t kVersion = 1;

Secret host_proof(const Secret& key, ByteView knock, const Secret& nonce) {
  return derive(key, "tithe tcp: host", {knock, nonce});
}

}  // namespace

std::array<std::uint8_t, kKnockBytes> write_knock(const Knock& knock) {
  std::array<std::uint8_t, kKnockBytes> out;
  wire::put(&out[0], kMagic);
  out[4] = kVersion;
  out[5] = static_cast<std::uint8_t>(knock.purpose);
  wire::put(&out[6], static_cast<std::uint16_t>(knock.stream));
  wire::put(&out[8], static_cast<std::uint32_t>(knock.from));
  wire::put(&out[12], static_cast<std::uint32_t>(knock.to));
  std::copy(knock.nonce.begin(), knock.nonce.end(), out.begin() + 16);
  return out;
}

std::optional<Knock> read_knock(ByteView bytes) {
  if (bytes.size() != kKnockBytes || wire::get<std::uint32_t>(&bytes[0]) != kMagic || bytes[4] != kVersion ||
      bytes[5] > static_cast<std::uint8_t>(Purpose::kData))
    return {};
  Knock knock{.purpose = static_cast<Purpose>(bytes[5]), .stream = wire::get<std::uint16_t>(&bytes[6])};
  const auto from = wire::get<std::uint32_t>(&bytes[8]), to = wire::get<std::uint32_t>(&bytes[12]);
  constexpr std::uint32_t kNoRank = 1U << 31;
  if (from >= kNoRank || to >= kNoRank || knock.stream >= kMostStreams) return {};
  if (knock.purpose == Purpose::kControl && knock.stream != 0) return {};
  knock.from = static_cast<Rank>(from);
  knock.to = static_cast<Rank>(to);
  std::copy(bytes.begin() + 16, bytes.end(), knock.nonce.begin());
  return knock;
}

std::array<std::uint8_t, kChallengeBytes> write_challenge(const Secret& key, ByteView knock,
                                                          const Secret& nonce) {
  std::array<std::uint8_t, kChallengeBytes> out;
  wire::put(&out[0], kMagic);
  std::copy(nonce.begin(), nonce.end(), out.begin() + 4);
  const Secret proof = host_proof(key, knock, nonce);
  std::copy(proof.begin(), proof.end(), out.end() - kSecretBytes);
  return out;
}

std::optional<Secret> read_challenge(const Secret& key, ByteView knock, ByteView challenge) {
  if (challenge.size() != kChallengeBytes || wire::get<std::uint32_t>(&challenge[0]) != kMagic) return {};
  Secret nonce;
  std::copy_n(challenge.begin() + 4, nonce.size(), nonce.begin());
  if (!equal_secrets(host_proof(key, knock, nonce), challenge.last(kSecretBytes))) return {};
  return nonce;
}

Secret claim(const Secret& key, ByteView knock, const Secret& nonce) {
  return derive(key, "tithe tcp: caller", {knock, nonce});
}

Secret welcome(const Secret& key, ByteView knock, const Secret& nonce) {
  return derive(key, "tithe tcp: welcome", {knock, nonce});
}

}  // namespace tithe::tcp
