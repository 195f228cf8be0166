// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files through which ranks exchange data. Only their user may read them. A file that another user could have written
// is refused, since in a folder such as /tmp any user can create one.
#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "transport/rendezvous/rendezvous.h"

namespace tithe::rendezvous {

// Writes a whole new file; fails if the file exists. `owner` receives the owner of the new file, which on some network
// file systems is not the writing user.
Status write_private(const std::filesystem::path& path, ByteView bytes, uid_t* owner = nullptr);

// Empty if there is no such file, or it is longer than `most`. kIo if the file is not private to `owner`.
Result<std::optional<Blob>> read_private(const std::filesystem::path& path, std::size_t most, uid_t owner);

}  // namespace tithe::rendezvous
