// SPDX-License-Identifier: Apache-2.0
// Messages of the TCP rendezvous. Every proof and every box key is derived from the token, both nonces and a label, so
// none is valid in another handshake or direction.
#include "transport/rendezvous/handshake.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "base/bytes.h"
#include "base/text.h"

namespace tithe::rendezvous {
namespace {

constexpr std::uint32_t kHandshakeMagic = 0x544d5454;  // "TTMT" in file order
constexpr std::uint32_t kHandshakeVersion = 3;
constexpr std::size_t kMaxText = 2000;

void append(Blob& out, std::uint32_t v) {
  out.resize(out.size() + sizeof v);
  wire::put(&out[out.size() - sizeof v], v);
}
void append(Blob& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

std::uint32_t number(ByteView bytes, std::size_t i) { return wire::get<std::uint32_t>(&bytes[4 * i]); }

Blob begin_message() {
  Blob out;
  append(out, kHandshakeMagic);
  append(out, kHandshakeVersion);
  return out;
}

bool begins_right(ByteView bytes, std::size_t size) {
  return bytes.size() == size && number(bytes, 0) == kHandshakeMagic && number(bytes, 1) == kHandshakeVersion;
}

Secret secret(const Handshake& shake, std::string_view purpose, ByteView what = {}) {
  return derive(shake.token, purpose, {shake.client, shake.host, what});
}

constexpr std::string_view kHostProof = "tithe meeting: rank 0", kAnswerProof = "tithe meeting: answer",
                           kClientProof = "tithe meeting: visitor", kToHost = "tithe meeting: box to rank 0",
                           kToClient = "tithe meeting: box to visitor";

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;
constexpr std::uint8_t kNonce[12] = {};  // constant, since each key encrypts one box

Blob seal_box(const Secret& key, ByteView plaintext) {
  const Context context(EVP_CIPHER_CTX_new());
  Blob box(plaintext.size() + kBoxTagBytes);
  int n = 0;
  std::uint8_t* tag = box.data() + plaintext.size();
  bool done = EVP_EncryptInit_ex2(context.get(), EVP_aes_256_gcm(), key.data(), kNonce, nullptr) == 1;
  if (!plaintext.empty())
    done = done && EVP_EncryptUpdate(context.get(), box.data(), &n, plaintext.data(),
                                     static_cast<int>(plaintext.size())) == 1;
  done = done && EVP_EncryptFinal_ex(context.get(), tag, &n) == 1 &&
         EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kBoxTagBytes, tag) == 1;
  TITHE_ASSERT(done);
  return done ? box : Blob(kBoxTagBytes);
}

std::optional<Blob> open_box(const Secret& key, ByteView box) {
  if (box.size() < kBoxTagBytes) return {};
  const Context context(EVP_CIPHER_CTX_new());
  const ByteView sealed = box.first(box.size() - kBoxTagBytes);
  std::uint8_t tag[kBoxTagBytes];
  std::memcpy(tag, box.data() + sealed.size(), sizeof tag);
  Blob plaintext(sealed.size());
  int n = 0;
  std::uint8_t none = 0;
  bool done = EVP_DecryptInit_ex2(context.get(), EVP_aes_256_gcm(), key.data(), kNonce, nullptr) == 1;
  if (!sealed.empty())
    done = done && EVP_DecryptUpdate(context.get(), plaintext.data(), &n, sealed.data(),
                                     static_cast<int>(sealed.size())) == 1;
  done = done && EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kBoxTagBytes, tag) == 1 &&
         EVP_DecryptFinal_ex(context.get(), &none, &n) == 1;
  if (!done) return {};
  return plaintext;
}

}  // namespace

bool has_magic(ByteView bytes) { return bytes.size() >= 4 && number(bytes, 0) == kHandshakeMagic; }

Blob write_request(const Secret& nonce) {
  Blob out = begin_message();
  append(out, nonce);
  return out;
}

std::optional<Secret> read_request(ByteView bytes) {
  if (!begins_right(bytes, kRequestBytes)) return {};
  Secret nonce;
  std::copy_n(bytes.begin() + 8, nonce.size(), nonce.begin());
  return nonce;
}

Blob write_challenge(const Handshake& shake) {
  Blob out = begin_message();
  append(out, static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                  shake.left.count(), 0, std::numeric_limits<std::uint32_t>::max())));
  append(out, shake.host);
  append(out, secret(shake, kHostProof, ByteView(out).first(12)));
  return out;
}

Status read_challenge(ByteView bytes, Handshake& shake) {
  if (bytes.size() != kChallengeBytes || number(bytes, 0) != kHandshakeMagic)
    return {Code::kMismatch, "the program at this address is not tithe's rank 0", 0};
  if (number(bytes, 1) != kHandshakeVersion)
    return {Code::kMismatch,
            fmt::format(
                "rank 0 uses rendezvous version {}, this rank uses {}: install the same tithe on all ranks",
                number(bytes, 1), kHandshakeVersion),
            0};
  std::copy_n(bytes.begin() + 12, shake.host.size(), shake.host.begin());
  shake.left = std::chrono::milliseconds(number(bytes, 2));
  if (equal_secrets(secret(shake, kHostProof, bytes.first(12)), bytes.last(kSecretBytes))) return {};
  return {Code::kMismatch,
          "the process that answered as rank 0 does not have this job's token: set the same TITHE_TOKEN on "
          "all ranks",
          0};
}

Blob write_claim(const Handshake& shake, std::uint32_t world, Rank rank, ByteView blob) {
  Blob out = begin_message();
  append(out, world);
  append(out, static_cast<std::uint32_t>(rank));
  append(out, static_cast<std::uint32_t>(blob.size() + kBoxTagBytes));
  append(out, secret(shake, kClientProof, Blob(out)));
  append(out, seal_box(secret(shake, kToHost), blob));
  return out;
}

std::optional<Claim> read_claim(ByteView bytes, const Handshake& shake) {
  if (!begins_right(bytes, kClaimBytes)) return {};
  if (!equal_secrets(secret(shake, kClientProof, bytes.first(20)), bytes.last(kSecretBytes))) return {};
  const Claim claim{number(bytes, 2), number(bytes, 3), number(bytes, 4)};
  if (claim.bytes < kBoxTagBytes || claim.bytes > kMaxBlobBytes + kBoxTagBytes || claim.rank >= 1U << 31)
    return {};
  return claim;
}

std::optional<Blob> open_claim(ByteView box, const Handshake& shake) {
  return open_box(secret(shake, kToHost), box);
}

Blob seal_for_client(const Handshake& shake, ByteView plaintext) {
  return seal_box(secret(shake, kToClient), plaintext);
}

Blob write_answer(const Handshake& shake, const Status& status, std::span<const Blob> items) {
  Blob plaintext;
  append(plaintext, static_cast<std::uint32_t>(status.code()));
  append(plaintext, static_cast<std::uint32_t>(status.peer() + 1));
  append(plaintext, static_cast<std::uint32_t>(items.size()));
  for (const Blob& item : items) {
    append(plaintext, static_cast<std::uint32_t>(item.size()));
    append(plaintext, item);
  }
  const Blob box = seal_for_client(shake, plaintext);
  Blob out = begin_message();
  append(out, static_cast<std::uint32_t>(box.size()));
  append(out, secret(shake, kAnswerProof, Blob(out)));
  append(out, box);
  return out;
}

std::optional<std::size_t> read_answer(ByteView bytes, const Handshake& shake, int world) {
  if (!begins_right(bytes, kAnswerBytes)) return {};
  if (!equal_secrets(secret(shake, kAnswerProof, bytes.first(12)), bytes.last(kSecretBytes))) return {};
  const std::size_t most = 12 + static_cast<std::size_t>(world) * (4 + kMaxBlobBytes) + kBoxTagBytes;
  const std::size_t box = number(bytes, 2);
  if (box > most || box > 1U << 30) return {};
  return box;
}

Result<std::vector<Blob>> open_answer(ByteView box, const Handshake& shake, int world, bool* whole) {
  const Status strange(Code::kCorrupt, "the answer of rank 0 was changed in transit", 0);
  const std::optional<Blob> plaintext = open_box(secret(shake, kToClient), box);
  if (!plaintext || plaintext->size() < 12) return strange;
  if (whole != nullptr) *whole = true;
  const std::uint32_t code = number(*plaintext, 0);
  const auto peer = static_cast<std::int64_t>(number(*plaintext, 1)) - 1;
  const std::size_t items = code == 0 ? static_cast<std::size_t>(world) : 1;
  if (code > static_cast<std::uint32_t>(Code::kCancelled) || peer >= world || number(*plaintext, 2) != items)
    return strange;
  std::vector<Blob> out;
  ByteView rest = ByteView(*plaintext).subspan(12);
  for (std::size_t i = 0; i < items; ++i) {
    if (rest.size() < 4) return strange;
    const std::size_t bytes = number(rest, 0);
    if (bytes > rest.size() - 4 || bytes > kMaxBlobBytes) return strange;
    out.emplace_back(rest.begin() + 4, rest.begin() + 4 + static_cast<std::ptrdiff_t>(bytes));
    rest = rest.subspan(4 + bytes);
  }
  if (!rest.empty()) return strange;
  if (code == 0) return out;
  const std::string_view text(reinterpret_cast<const char*>(out[0].data()), out[0].size());
  return Status(static_cast<Code>(code), printable(text, kMaxText), static_cast<int>(peer));
}

}  // namespace tithe::rendezvous
