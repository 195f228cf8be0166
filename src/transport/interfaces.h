// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses of this machine's interfaces that are up. Addresses that hold on one link alone are left out.
#include <span>
#include <string>
#include <vector>

namespace tithe {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.1"
  bool loopback = false;  // the interface's, whatever the address
  bool bridge = false;    // such as docker0, which often leads no further than this machine
};

std::vector<InterfaceAddress> interface_addresses();

// "10.0.0.1 (eth0), 172.17.0.1 (docker0)", without loopback interfaces; "none" where there is no other.
std::string shown(std::span<const InterfaceAddress> addresses);

}  // namespace tithe
