// SPDX-License-Identifier: Apache-2.0
// Fixed-size messages. Each of the three proofs has its own label, so one cannot be replayed as another.
#include "transport/tcp/tcp_handshake.h"

#include <algorithm>

#include "base/bytes.h"

namespace tithe::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x43545454;  // "TTTC" in file order
constexpr std::uint8_t kVersion = 1;

Secret host_proof(const Secret& key, ByteView request, const Secret& nonce) {
  return derive(key, "tithe tcp: host", {request, nonce});
}

}  // namespace

std::array<std::uint8_t, kConnectRequestBytes> write_request(const ConnectRequest& request) {
  std::array<std::uint8_t, kConnectRequestBytes> out;
  wire::put(&out[0], kMagic);
  out[4] = kVersion;
  out[5] = static_cast<std::uint8_t>(request.purpose);
  wire::put(&out[6], static_cast<std::uint16_t>(request.stream));
  wire::put(&out[8], static_cast<std::uint32_t>(request.from));
  wire::put(&out[12], static_cast<std::uint32_t>(request.to));
  std::copy(request.nonce.begin(), request.nonce.end(), out.begin() + 16);
  return out;
}

std::optional<ConnectRequest> read_request(ByteView bytes) {
  if (bytes.size() != kConnectRequestBytes || wire::get<std::uint32_t>(&bytes[0]) != kMagic ||
      bytes[4] != kVersion || bytes[5] > static_cast<std::uint8_t>(Purpose::kData))
    return {};
  ConnectRequest request{.purpose = static_cast<Purpose>(bytes[5]),
                         .stream = wire::get<std::uint16_t>(&bytes[6])};
  const auto from = wire::get<std::uint32_t>(&bytes[8]), to = wire::get<std::uint32_t>(&bytes[12]);
  constexpr std::uint32_t kNoRank = 1U << 31;
  if (from >= kNoRank || to >= kNoRank || request.stream >= kMaxStreams) return {};
  if (request.purpose == Purpose::kControl && request.stream != 0) return {};
  request.from = static_cast<Rank>(from);
  request.to = static_cast<Rank>(to);
  std::copy(bytes.begin() + 16, bytes.end(), request.nonce.begin());
  return request;
}

std::array<std::uint8_t, kChallengeBytes> write_challenge(const Secret& key, ByteView request,
                                                          const Secret& nonce) {
  std::array<std::uint8_t, kChallengeBytes> out;
  wire::put(&out[0], kMagic);
  std::copy(nonce.begin(), nonce.end(), out.begin() + 4);
  const Secret proof = host_proof(key, request, nonce);
  std::copy(proof.begin(), proof.end(), out.end() - kSecretBytes);
  return out;
}

std::optional<Secret> read_challenge(const Secret& key, ByteView request, ByteView challenge) {
  if (challenge.size() != kChallengeBytes || wire::get<std::uint32_t>(&challenge[0]) != kMagic) return {};
  Secret nonce;
  std::copy_n(challenge.begin() + 4, nonce.size(), nonce.begin());
  if (!equal_secrets(host_proof(key, request, nonce), challenge.last(kSecretBytes))) return {};
  return nonce;
}

Secret claim(const Secret& key, ByteView request, const Secret& nonce) {
  return derive(key, "tithe tcp: caller", {request, nonce});
}

Secret welcome(const Secret& key, ByteView request, const Secret& nonce) {
  return derive(key, "tithe tcp: welcome", {request, nonce});
}

}  // namespace tithe::tcp
