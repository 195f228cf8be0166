// SPDX-License-Identifier: Apache-2.0
// Random bytes from getrandom(), and HMAC-SHA256 from libcrypto.
#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/bytes.h"

namespace tithe {

Status fill_random(Bytes out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n > 0)
      out = out.subspan(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      return {Code::kIo, std::string("the system returned no random bytes: ") + std::strerror(errno)};
  }
  return {};
}

Secret derive(ByteView key, std::string_view purpose, std::initializer_list<ByteView> parts) {
  std::vector<std::uint8_t> message(purpose.begin(), purpose.end());
  message.push_back(0);
  for (const ByteView part : parts) {
    const std::size_t at = message.size();
    message.resize(at + sizeof(std::uint64_t));
    wire::put(&message[at], std::uint64_t{part.size()});
    message.insert(message.end(), part.begin(), part.end());
  }
  static constexpr std::uint8_t kNothing = 0;
  Secret out{};
  unsigned bytes = 0;
  const bool done = HMAC(EVP_sha256(), key.empty() ? &kNothing : key.data(), static_cast<int>(key.size()),
                         message.data(), message.size(), out.data(), &bytes) != nullptr;
  TITHE_ASSERT(done && bytes == out.size());
  static_cast<void>(done);
  return out;
}

bool equal_secrets(ByteView a, ByteView b) {
  return a.size() == b.size() && (a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace tithe
