// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages by which a visitor (another rank) and rank 0 authenticate each other over TCP, between bytes and values.
// Little-endian:
//
//   request     visitor:  u32 magic | u32 version | nonce, 32 bytes
//   challenge   rank 0:   u32 magic | u32 version | u32 milliseconds for which rank 0 will still wait |
//                         nonce, 32 bytes | proof, 32 bytes: rank 0 has the token
//   claim       visitor:  u32 magic | u32 version | u32 world | u32 rank | u32 bytes | proof, 32 bytes: so has it
//               and a box of that many bytes: its blob
//   answer      rank 0:   u32 magic | u32 version | u32 bytes | proof, 32 bytes: rank 0 says so
//               and a box of that many bytes: u32 status code | u32 peer + 1 | u32 items | items x (u32 bytes, item)
//               status ok: the blobs in rank order; else one item, the text of what went wrong
//   thanks      visitor:  a byte, whatever it is: the answer came whole. One who goes without it comes again
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

// All that both sides know once they have each other's nonce.
struct Handshake {
  Token token;
  Secret visitor = {};
  Secret host = {};
  std::chrono::milliseconds left = {};  // for which rank 0 will wait, from its challenge on
};

struct Claim {
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint32_t bytes = 0;  // of the box that follows
};

Blob write_request(const Secret& nonce);
std::optional<Secret> read_request(ByteView bytes);

// True if the first four bytes of an answer are tithe's.
bool begins_as_ours(ByteView bytes);

Blob write_challenge(const Handshake& shake);
// Puts rank 0's nonce and its time into `shake`. kMismatch for what is not tithe's, for another version, and for
// another token.
Status read_challenge(ByteView bytes, Handshake& shake);

Blob write_claim(const Handshake& shake, std::uint32_t world, Rank rank, ByteView blob);
// nullopt if the visitor does not have the token, or claims more bytes than a blob may have.
std::optional<Claim> read_claim(ByteView bytes, const Handshake& shake);
std::optional<Blob> open_claim(ByteView box, const Handshake& shake);

Blob write_answer(const Handshake& shake, const Status& status, std::span<const Blob> items);
// Any bytes in a box as rank 0 would seal it.
Blob seal_for_visitor(const Handshake& shake, ByteView plain);
// The bytes of the box that follows; nothing where it is no answer of rank 0's, or too long for `world` ranks.
std::optional<std::size_t> read_answer(ByteView bytes, const Handshake& shake, int world);
// *whole, if asked for: the box is rank 0's, whatever it holds.
Result<std::vector<Blob>> open_answer(ByteView box, const Handshake& shake, int world, bool* whole = nullptr);

}  // namespace tithe::rendezvous
