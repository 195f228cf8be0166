// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that ranks leave for each other: nobody but their user may read them, and one that somebody else could have
// written is refused, since in a folder such as /tmp anybody can put one.
#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "transport/rendezvous/rendezvous.h"

namespace tithe::rendezvous {

// Writes a file that is not there yet, whole; `owner`: whom it then belongs to, which on some network file systems is
// not who wrote it.
Status write_private(const std::filesystem::path& path, ByteView bytes, uid_t* owner = nullptr);

// nullopt: none is there, or it is longer than `most`. kIo for one that is not of `owner` alone.
Result<std::optional<Blob>> read_private(const std::filesystem::path& path, std::size_t most, uid_t owner);

}  // namespace tithe::rendezvous
