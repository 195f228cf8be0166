// SPDX-License-Identifier: Apache-2.0
#pragma once
// Secrets: random bytes, HMAC-SHA256 (RFC 2104) and derived keys, with libcrypto.
#include <array>
#include <initializer_list>
#include <string_view>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe {

inline constexpr std::size_t kSecretBytes = 32;
using Secret = std::array<std::uint8_t, kSecretBytes>;

// From the kernel's generator. kIo if it is unavailable.
Status fill_random(Bytes out);

// HMAC over `purpose`, a zero byte, and each part preceded by its length, so two different lists never give the same
// bytes.
Secret derive(ByteView key, std::string_view purpose, std::initializer_list<ByteView> parts);

// Compares in constant time.
bool equal_secrets(ByteView a, ByteView b);

}  // namespace tithe
