// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words on a new connection until both ends know that the other is a rank of this job, as functions between bytes
// and values. Everything has a fixed length, so that a stranger makes nobody keep more than one of these.
// Little-endian:
//
//   knock      caller:  u32 magic | u8 version | u8 purpose | u16 stream | u32 from | u32 to | nonce, 32 bytes
//   challenge  host:    u32 magic | nonce, 32 bytes | proof, 32 bytes
//   claim      caller:  proof, 32 bytes
//   welcome    host:    proof, 32 bytes
//
// Proofs are HMAC-SHA256 by the key of the job over the knock and the host's nonce, each for its own purpose.
#include <array>
#include <optional>

#include "base/secret.h"
#include "tithe/seam/transport.h"

namespace tithe::tcp {

inline constexpr std::size_t kKnockBytes = 16 + kSecretBytes;
inline constexpr std::size_t kChallengeBytes = 4 + 2 * kSecretBytes;
inline constexpr std::size_t kClaimBytes = kSecretBytes;
inline constexpr std::size_t kWelcomeBytes = kSecretBytes;
inline constexpr int kMostStreams = 64;

enum class Purpose : std::uint8_t { kControl, kData };  // kData: from the caller to the host alone

struct Knock {
  Purpose purpose = Purpose::kControl;
  int stream = 0;  // which of the caller's data connections
  Rank from = 0;
  Rank to = 0;
  Secret nonce = {};
  friend bool operator==(const Knock&, const Knock&) = default;
};

std::array<std::uint8_t, kKnockBytes> write_knock(const Knock& knock);
// Nothing where no rank of this version would say it.
std::optional<Knock> read_knock(ByteView bytes);

std::array<std::uint8_t, kChallengeBytes> write_challenge(const Secret& key, ByteView knock,
                                                          const Secret& nonce);
// The host's nonce, where it has the key.
std::optional<Secret> read_challenge(const Secret& key, ByteView knock, ByteView challenge);

Secret claim(const Secret& key, ByteView knock, const Secret& nonce);
Secret welcome(const Secret& key, ByteView knock, const Secret& nonce);

}  // namespace tithe::tcp
