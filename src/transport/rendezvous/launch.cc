// SPDX-License-Identifier: Apache-2.0
// Reads the environment variables that launchers set. No other file of the library reads them for this purpose.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/open_file.h"
#include "tithe/connect.h"

namespace tithe {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
};

// The first launcher whose rank variable is set counts. mpirun comes before Slurm, since it often runs inside a Slurm
// job.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

const char* variable(const char* name) {
  const char* v = std::getenv(name);
  return v != nullptr && *v != '\0' ? v : nullptr;
}

Result<int> number(const char* name, int low, int high) {
  const char* text = variable(name);
  if (text == nullptr) return Status(Code::kInvalid, fmt::format("{} is not set", name));
  int v = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, v);
  if (error != std::errc{} || stop != end || v < low || v > high)
    return Status(Code::kInvalid, fmt::format("{}={}: must be a number in {} .. {}", name, text, low, high));
  return v;
}

constexpr const char* kMakeOne = "create one with openssl rand -hex 32";

// A token from hexadecimal digits. Error texts do not contain the digits, which are secret.
Result<Token> token_from(std::string_view digits, const std::string& where) {
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char low = static_cast<char>(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
  };
  Token token;
  bool good = digits.size() % 2 == 0;
  for (std::size_t i = 0; good && i < digits.size(); i += 2) {
    const int high = value(digits[i]), low = value(digits[i + 1]);
    good = high >= 0 && low >= 0;
    token.push_back(static_cast<std::uint8_t>(16 * high + low));
  }
  if (!good || token.size() < kMinTokenBytes || token.size() > 1024)
    return Status(
        Code::kInvalid,
        fmt::format("{}: a job token must have an even number of hexadecimal digits, at least {}: {}", where,
                    2 * kMinTokenBytes, kMakeOne));
  return token;
}

Result<Token> token_in_file(const std::string& path) {
  const auto wrong = [&](const std::string& why) {
    return Status(Code::kInvalid, fmt::format("TITHE_TOKEN_FILE={}: {}", path, why));
  };
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return wrong(std::strerror(errno));
  struct stat s {};
  if (fstat(file.get(), &s) != 0 || !S_ISREG(s.st_mode)) return wrong("it is not a regular file");
  if ((s.st_mode & 077) != 0)
    return wrong(
        fmt::format("users other than its owner have access (mode {:o}): run chmod 600 '{}'; for a Secret of "
                    "Kubernetes set defaultMode: 0600",
                    s.st_mode & 0777, path));
  char text[4096];
  const ssize_t n = ::read(file.get(), text, sizeof text);
  if (n < 0) return wrong("cannot be read");
  std::string_view digits(text, static_cast<std::size_t>(n));
  while (!digits.empty() && std::strchr(" \t\r\n", digits.back()) != nullptr) digits.remove_suffix(1);
  return token_from(digits, fmt::format("TITHE_TOKEN_FILE={}", path));
}

}  // namespace

Result<TokenGiven> token_from_environment() {
  const char* digits = variable("TITHE_TOKEN");
  const char* path = variable("TITHE_TOKEN_FILE");
  if (digits != nullptr && std::string_view(digits) == "none")
    return TokenGiven{.token = {}, .unguarded = true};
  if (digits == nullptr && path == nullptr) return TokenGiven{};
  Result<Token> token = digits != nullptr ? token_from(digits, "TITHE_TOKEN") : token_in_file(path);
  if (!token.ok()) return token.status();
  return TokenGiven{.token = std::move(*token)};
}

// Rank and world come from the launcher, the token from TITHE_TOKEN or TITHE_TOKEN_FILE, and the meeting point from
// TITHE_FILE or MASTER_ADDR and MASTER_PORT.
Result<Launch> launch_from_environment() {
  constexpr int kMaxRanks = 1 << 16;
  const Launcher* by = nullptr;
  for (const Launcher& l : kLaunchers)
    if (by == nullptr && variable(l.rank) != nullptr) by = &l;
  if (by == nullptr)
    return Status(
        Code::kInvalid,
        "RANK is not set: start the ranks with torchrun, mpirun or srun, or set RANK and WORLD_SIZE");
  Launch launch;
  Result<int> world = number(by->world, 1, kMaxRanks);
  if (!world.ok()) return world.status();
  launch.world = *world;
  Result<int> rank = number(by->rank, 0, launch.world - 1);
  if (!rank.ok()) return rank.status();
  launch.rank = *rank;
  Result<TokenGiven> given = token_from_environment();
  if (!given.ok()) return given.status();
  launch.token = std::move(given->token);
  launch.unguarded = given->unguarded;

  if (const char* file = variable("TITHE_FILE")) {
    launch.file = file;
    return launch;
  }
  const char* host = variable("MASTER_ADDR");
  if (host == nullptr && variable("MASTER_PORT") == nullptr && launch.world == 1) return launch;
  if (host == nullptr)
    return Status(
        Code::kInvalid,
        fmt::format("MASTER_ADDR is not set ({} gives rank {} of {}): set MASTER_ADDR and MASTER_PORT to a "
                    "free port on rank 0's host, or TITHE_FILE to a path that all ranks share",
                    by->name, launch.rank, launch.world));
  launch.host = host;
  Result<int> port = number("MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  launch.port = *port;
  return launch;
}

}  // namespace tithe
