// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rate of this machine's links, as their drivers report it in sysfs. No clock is read and nothing is sent, so every
// process on a machine gets the same result.
//
// Only an interface that is a device, or that lies above one (a bond, a bridge, a VLAN), has a known rate. A veth or a
// TUN interface reports an invented number, so its rate counts as unknown. A rate is a whole number of bytes per
// second.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tithe {

// The rate of an interface such as "eth0", in bytes per second; 0: unknown.
std::uint64_t interface_rate(std::string_view name, const std::string& sys = "/sys");
// The rate of a port of an RDMA card, such as "mlx5_0:1", in bytes per second; 0: unknown.
std::uint64_t rdma_rate(std::string_view port, const std::string& sys = "/sys");
// The rate of the fastest of the given transports and devices, which have UCX's form: "tcp/eth0", "rc_mlx5/mlx5_0:1".
// UCX prefers the fastest one.
std::uint64_t fastest_rate(std::span<const std::string> devices, const std::string& sys = "/sys");

}  // namespace tithe
