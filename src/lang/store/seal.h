// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file that says at its end what it should hold, so that one that was cut or damaged is known before it is loaded:
// the loader maps a library that is too short and is killed where it reads.
//
//   one file   what it says stands behind its contents, where loaders do not look: both are replaced at once
//   seal       48 bytes: "tithe object 1\n", how many bytes stand in front, and their checksum (XXH3, 128 bits)
//   no lock    it finds accidents; who may write to the cache can write a seal as well
#include <cstddef>
#include <string>

#include "tithe/status.h"

namespace tithe::lang {

inline constexpr std::size_t kSealBytes = 48;
inline constexpr std::size_t kMostSealed = std::size_t{64} << 20;  // bytes of a file

// Writes the seal behind what the file holds. kIo: it cannot be read or written to.
Status seal(const std::string& path);

// Ok if an open file is as it was sealed. kCorrupt: it is not, and in what way; kIo: it cannot be read.
Status check_seal(int fd);

}  // namespace tithe::lang
