// SPDX-License-Identifier: Apache-2.0
// A Board stored in a folder, one file per key. A value is written to a file with another name and then hard-linked to
// its own name. link() fails if that name exists, so the first writer wins, on network file systems too.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/secret.h"
#include "tithe/rejoin.h"
#include "transport/rendezvous/private_file.h"

namespace tithe {
namespace {

namespace fs = std::filesystem;
using rendezvous::Blob;

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // a saved state may be stored there too

// A key as a file name. Every character other than a letter, digit, dot or dash is replaced by its number.
fs::path path_of(const fs::path& folder, const std::string& key) {
  std::string name = "tithe.";
  for (const char c : key) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    name += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  }
  return folder / name;
}

Result<std::optional<Blob>> read(const fs::path& path) {
  return rendezvous::read_private(path, kMaxBytes, geteuid());
}

}  // namespace

Board board_in(const std::string& folder) {
  return {.put_first = [folder](const std::string& key, ByteView value) -> Result<Board::Text> {
            const fs::path path = path_of(folder, key);
            std::uint8_t nonce[8];
            TITHE_TRY(fill_random(nonce));
            const fs::path fresh = path.string() + fmt::format(".{:016x}", wire::get<std::uint64_t>(nonce));
            std::error_code ignored;
            Status s = rendezvous::write_private(fresh, value);
            const bool first = s.ok() && link(fresh.c_str(), path.c_str()) == 0;
            if (s.ok() && !first && errno != EEXIST)
              s = {Code::kIo, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno))};
            fs::remove(fresh, ignored);
            if (!s.ok()) return s;
            if (first) return Board::Text(value.begin(), value.end());
            Result<std::optional<Blob>> there = read(path);
            if (!there.ok()) return there.status();
            if (!*there)
              return Status(Code::kIo, fmt::format("{} existed and was then removed", path.string()));
            return std::move(**there);
          },
          .get = [folder](const std::string& key) { return read(path_of(folder, key)); }};
}

}  // namespace tithe
