// SPDX-License-Identifier: Apache-2.0
#pragma once
// Secrets: random bytes, HMAC-SHA256 (RFC 2104) and keys that are made from keys. From libcrypto.
#include <array>
#include <initializer_list>
#include <string_view>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe {

inline constexpr std::size_t kSecretBytes = 32;
using Secret = std::array<std::uint8_t, kSecretBytes>;

// From the kernel's generator. kIo where there is none.
Status fill_random(Bytes out);

// Over `purpose`, a zero byte, and then each part preceded by its length: two lists never make the same bytes.
Secret derive(ByteView key, std::string_view purpose, std::initializer_list<ByteView> parts);

// In a time that does not tell where they differ.
bool equal_secrets(ByteView a, ByteView b);

}  // namespace tithe
