// SPDX-License-Identifier: Apache-2.0
#pragma once
// The user's cache: a folder, and files in it, that no other user can write to. Any other folder is refused with the
// cure.
#include <sys/types.h>

#include <string>

#include "base/open_file.h"
#include "tithe/status.h"

namespace tithe::lang {

// The value of an environment variable; empty if it is unset, or if the process has more rights than its user.
std::string environment(const char* name);

// TITHE_CACHE, or else tithe in $XDG_CACHE_HOME or ~/.cache. kUnsupported: none of these is set.
Result<std::string> cache_folder();
// Ok if it belongs to the user, is of this kind, and is not writable by others.
Status check_private(int fd, const std::string& path, mode_t kind);
// Creates the folder if it does not exist.
Result<OpenFile> open_folder(const std::string& path);
// Removes all but the `most` most recently used files with this ending, and their locks: FILE.lock.
void keep_newest(const std::string& folder, const char* ending, std::size_t most);

}  // namespace tithe::lang
