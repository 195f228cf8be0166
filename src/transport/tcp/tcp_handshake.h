// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages on a new connection by which each end proves that it is a rank of this job, as functions between bytes
// and values. Each message has a fixed length, so a stranger cannot make a rank store more than one of them.
// Little-endian:
//
//   request    caller:  u32 magic | u8 version | u8 purpose | u16 stream | u32 from | u32 to | nonce, 32 bytes
//   challenge  host:    u32 magic | nonce, 32 bytes | proof, 32 bytes
//   claim      caller:  proof, 32 bytes
//   welcome    host:    proof, 32 bytes
//
// Proofs are HMAC-SHA256 with the job's key over the request and the host's nonce. Each kind of proof has its own
// label.
#include <array>
#include <optional>

#include "base/secret.h"
#include "tithe/seam/transport.h"

namespace tithe::tcp {

inline constexpr std::size_t kConnectRequestBytes = 16 + kSecretBytes;
inline constexpr std::size_t kChallengeBytes = 4 + 2 * kSecretBytes;
inline constexpr std::size_t kClaimBytes = kSecretBytes;
inline constexpr std::size_t kWelcomeBytes = kSecretBytes;
inline constexpr int kMaxStreams = 64;

// A kData connection carries bytes only from the caller to the host.
enum class Purpose : std::uint8_t { kControl, kData };

struct ConnectRequest {
  Purpose purpose = Purpose::kControl;
  int stream = 0;  // the index of the caller's data connection
  Rank from = 0;
  Rank to = 0;
  Secret nonce = {};
  friend bool operator==(const ConnectRequest&, const ConnectRequest&) = default;
};

std::array<std::uint8_t, kConnectRequestBytes> write_request(const ConnectRequest& request);
// Empty if no rank of this version writes such a request.
std::optional<ConnectRequest> read_request(ByteView bytes);

std::array<std::uint8_t, kChallengeBytes> write_challenge(const Secret& key, ByteView request,
                                                          const Secret& nonce);
// The host's nonce; empty if the host's proof shows another key.
std::optional<Secret> read_challenge(const Secret& key, ByteView request, ByteView challenge);

Secret claim(const Secret& key, ByteView request, const Secret& nonce);
Secret welcome(const Secret& key, ByteView request, const Secret& nonce);

}  // namespace tithe::tcp
