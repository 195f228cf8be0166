// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checksum at the end of a file, to detect truncated or damaged shared objects before they are loaded: the loader
// would map a truncated library and crash on access.
//
//   in the file  the seal is behind the contents, where loaders do not look, so both are replaced atomically
//   format       48 bytes: "tithe object 1\n", the number of bytes before it, and their checksum (XXH3, 128 bits)
//   no security  the seal detects accidents only: a process with write access to the cache can also write a seal
#include <cstddef>
#include <string>

#include "tithe/status.h"

namespace tithe::lang {

inline constexpr std::size_t kSealBytes = 48;
inline constexpr std::size_t kMaxSealed = std::size_t{64} << 20;  // maximum file size

// Appends the seal to a file. kIo: it cannot be read or written.
Status seal(const std::string& path);

// Ok if an open file matches its seal. kCorrupt: it does not, with the difference; kIo: it cannot be read.
Status check_seal(int fd);

}  // namespace tithe::lang
