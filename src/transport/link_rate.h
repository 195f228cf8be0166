// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rate of this machine's links, as their drivers tell it. No clock is read and nothing is sent, so that all runs on
// one machine are told the same.
//
//   device     an interface is asked that is a device, or lies above one, as a bond, a bridge or a VLAN does. Others,
//              such as a veth or a TUN, have no known rate: the number that they give is made up
//   plain      a rate is a whole number of bytes per second
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tithe {

// Bytes per second of "eth0"; 0: not known.
std::uint64_t interface_rate(std::string_view name, const std::string& sys = "/sys");
// The same of a port of a card with RDMA, "mlx5_0:1".
std::uint64_t rdma_rate(std::string_view port, const std::string& sys = "/sys");
// The same of the fastest of "tcp/eth0", "rc_mlx5/mlx5_0:1" and so on, as UCX names them: it takes that one.
std::uint64_t fastest_rate(std::span<const std::string> ways, const std::string& sys = "/sys");

}  // namespace tithe
