// SPDX-License-Identifier: Apache-2.0
#include "frame/tagger.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>

#include "base/bytes.h"

namespace tithe {

void Tagger::Free::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

Tagger::Tagger(const Secret& key) : context_(EVP_CIPHER_CTX_new()) {
  const bool ready = context_ != nullptr && EVP_EncryptInit_ex2(context_.get(), EVP_aes_256_gcm(), key.data(),
                                                                nullptr, nullptr) == 1;
  TITHE_ASSERT(ready);
  static_cast<void>(ready);
}

// GCM with an empty plaintext: all pieces are associated data.
Tag Tagger::tag(std::uint32_t source, std::uint64_t number, std::initializer_list<ByteView> pieces) {
  std::uint8_t nonce[12];
  wire::put(nonce, source);
  wire::put(nonce + 4, number);
  Tag out{};
  int n = 0;
  bool done = EVP_EncryptInit_ex2(context_.get(), nullptr, nullptr, nonce, nullptr) == 1;
  for (ByteView piece : pieces)
    while (done && !piece.empty()) {
      const std::size_t some = std::min<std::size_t>(piece.size(), std::size_t{1} << 30);
      done = EVP_EncryptUpdate(context_.get(), nullptr, &n, piece.data(), static_cast<int>(some)) == 1;
      piece = piece.subspan(some);
    }
  done = done && EVP_EncryptFinal_ex(context_.get(), out.data(), &n) == 1;
  OSSL_PARAM get[] = {OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, out.data(), out.size()),
                      OSSL_PARAM_construct_end()};
  done = done && EVP_CIPHER_CTX_get_params(context_.get(), get) == 1;
  TITHE_ASSERT(done);
  // On failure, a random tag: no rank accepts it, and an attacker cannot predict it.
  if (!done) static_cast<void>(fill_random(out));
  return out;
}

Tags::Tags(ByteView session_key, int lanes) {
  const Secret key = derive(session_key, "tithe frames", {});
  taggers_.reserve(static_cast<std::size_t>(lanes) + 1);
  for (int lane = 0; lane <= lanes; ++lane) taggers_.emplace_back(key);
}

}  // namespace tithe
