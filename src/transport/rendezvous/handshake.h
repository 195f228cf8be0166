// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages by which rank 0 and a client (any other rank) authenticate each other over TCP, as functions between
// bytes and values. Little-endian:
//
//   request     client:  u32 magic | u32 version | nonce, 32 bytes
//   challenge   rank 0:   u32 magic | u32 version | u32 milliseconds for which rank 0 will still wait |
//                         nonce, 32 bytes | proof, 32 bytes: rank 0 has the token
//   claim       client:  u32 magic | u32 version | u32 world | u32 rank | u32 bytes | proof, 32 bytes: the client has
//               the token, then a box of `bytes` bytes: the client's blob
//   answer      rank 0:   u32 magic | u32 version | u32 bytes | proof, 32 bytes: the answer is rank 0's,
//               then a box of `bytes` bytes: u32 status code | u32 peer + 1 | u32 items | items x (u32 bytes, item)
//               status ok: the blobs in rank order; else one item, the text of the error
//   thanks      client:  one byte of any value: the answer arrived complete. A client without an answer returns
// Proofs are HMAC-SHA256 by the token over both nonces and the numbers before them. A box is sealed with AES-256-GCM
// under a key from the token, the nonces and its direction, used once; its last 16 bytes are the tag.
#include <chrono>
#include <optional>

#include "base/secret.h"
#include "transport/rendezvous/rendezvous.h"

namespace tithe::rendezvous {

inline constexpr std::size_t kRequestBytes = 8 + kSecretBytes;
inline constexpr std::size_t kChallengeBytes = 12 + 2 * kSecretBytes;
inline constexpr std::size_t kClaimBytes = 20 + kSecretBytes;
inline constexpr std::size_t kAnswerBytes = 12 + kSecretBytes;
inline constexpr std::size_t kBoxTagBytes = 16;

// The state of a handshake after both nonces are exchanged.
struct Handshake {
  Token token;
  Secret client = {};
  Secret host = {};
  std::chrono::milliseconds left = {};  // time for which rank 0 still waits, counted from its challenge
};

struct Claim {
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint32_t bytes = 0;  // size of the box that follows
};

Blob write_request(const Secret& nonce);
std::optional<Secret> read_request(ByteView bytes);

// True if the first four bytes of an answer are tithe's magic number.
bool has_magic(ByteView bytes);

Blob write_challenge(const Handshake& shake);
// Stores rank 0's nonce and its remaining time in `shake`. kMismatch if the bytes are not tithe's, for another version,
// and for another token.
Status read_challenge(ByteView bytes, Handshake& shake);

Blob write_claim(const Handshake& shake, std::uint32_t world, Rank rank, ByteView blob);
// Empty if the client does not have the token, or claims more bytes than a blob may have.
std::optional<Claim> read_claim(ByteView bytes, const Handshake& shake);
std::optional<Blob> open_claim(ByteView box, const Handshake& shake);

Blob write_answer(const Handshake& shake, const Status& status, std::span<const Blob> items);
// Encrypts any bytes for the client, as rank 0 does.
Blob seal_for_client(const Handshake& shake, ByteView plaintext);
// The size of the box that follows. Empty if the answer is not rank 0's, or too long for `world` ranks.
std::optional<std::size_t> read_answer(ByteView bytes, const Handshake& shake, int world);
// Sets *whole, if not null, once the box is verified as rank 0's, even if its content is invalid.
Result<std::vector<Blob>> open_answer(ByteView box, const Handshake& shake, int world, bool* whole = nullptr);

}  // namespace tithe::rendezvous
