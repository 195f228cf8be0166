// SPDX-License-Identifier: Apache-2.0
// Reads link rates from sysfs: class/net/*/speed in Mbit/s, class/infiniband/*/ports/*/rate as "100 Gb/sec".
#include "transport/link_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace tithe {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxMbit = 1e7;  // a link that is down reports -1, on older kernels 2^32 - 1
constexpr int kMaxFloors = 4;     // VLAN above bridge above bond above device

std::uint64_t whole_bytes(double mbit) {
  return mbit > 0 && mbit <= kMaxMbit ? static_cast<std::uint64_t>(std::llround(mbit * 1e6 / 8)) : 0;
}

// True if the interface is a device, or if one of the interfaces below it is, `floors` levels down at most.
bool stands_on_a_device(const fs::path& interfaces, const std::string& name, int floors) {
  std::error_code none;
  if (fs::exists(interfaces / name / "device", none)) return true;
  if (floors == 0) return false;
  constexpr std::string_view kLower = "lower_";
  for (fs::directory_iterator at(interfaces / name, none), end; !none && at != end; at.increment(none)) {
    const std::string file = at->path().filename();
    if (file.starts_with(kLower) && stands_on_a_device(interfaces, file.substr(kLower.size()), floors - 1))
      return true;
  }
  return false;
}

}  // namespace

std::uint64_t interface_rate(std::string_view name, const std::string& sys) {
  const fs::path interfaces = fs::path(sys) / "class/net";
  if (name.empty() || name.find('/') != std::string_view::npos || name.starts_with('.')) return 0;
  if (!stands_on_a_device(interfaces, std::string(name), kMaxFloors)) return 0;
  double mbit = 0;
  std::ifstream(interfaces / name / "speed") >> mbit;
  return whole_bytes(mbit);
}

std::uint64_t rdma_rate(std::string_view port, const std::string& sys) {
  const std::size_t colon = port.find(':');
  if (colon == std::string_view::npos || port.find('/') != std::string_view::npos) return 0;
  double gbit = 0;  // "100 Gb/sec (4X EDR)"
  std::ifstream(fmt::format("{}/class/infiniband/{}/ports/{}/rate", sys, port.substr(0, colon),
                            port.substr(colon + 1))) >>
      gbit;
  return whole_bytes(1e3 * gbit);
}

std::uint64_t fastest_rate(std::span<const std::string> devices, const std::string& sys) {
  std::uint64_t most = 0;
  for (const std::string& path : devices) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos) continue;
    const std::string_view device = std::string_view(path).substr(slash + 1);
    most = std::max(most, path.starts_with("tcp/") ? interface_rate(device, sys) : rdma_rate(device, sys));
  }
  return most;
}

}  // namespace tithe
