// SPDX-License-Identifier: Apache-2.0
// The environment that launchers leave behind. No other file of the library reads it for this purpose.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tithe/connect.h"

namespace tithe {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
};

// The first whose rank variable is set is believed. mpirun stands before Slurm, since it often runs inside
// it.
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

}  // namespace

Result<Launch> launch_from_environment() {
  constexpr int kMostRanks = 1 << 16;
  const Launcher* by = nullptr;
  for (const Launcher& l : kLaunchers)
    if (by == nullptr && variable(l.rank) != nullptr) by = &l;
  if (by == nullptr)
    return Status(
        Code::kInvalid,
        "RANK is not set: start the ranks with torchrun, mpirun or srun, or set RANK and WORLD_SIZE");
  Launch launch;
  Result<int> world = number(by->world, 1, kMostRanks);
  if (!world.ok()) return world.status();
  launch.world = *world;
  Result<int> rank = number(by->rank, 0, launch.world - 1);
  if (!rank.ok()) return rank.status();
  launch.rank = *rank;

  if (const char* file = variable("TITHE_FILE")) {
    launch.file = file;
    return launch;
  }
  const char* host = variable("MASTER_ADDR");
  if (host == nullptr && variable("MASTER_PORT") == nullptr && launch.world == 1) return launch;
  if (host == nullptr)
    return Status(
        Code::kInvalid,
        fmt::format("MASTER_ADDR is not set ({} says rank {} of {}): set MASTER_ADDR and MASTER_PORT to a "
                    "free port on rank 0's host, or TITHE_FILE to a path that all ranks share",
                    by->name, launch.rank, launch.world));
  launch.host = host;
  Result<int> port = number("MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  launch.port = *port;
  return launch;
}

}  // namespace tithe
