// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses of this machine's network interfaces that are up, without link-local IPv6 addresses.
#include <span>
#include <string>
#include <vector>

namespace tithe {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.1"
  bool loopback = false;  // whether the interface is a loopback, whatever the address
  bool bridge = false;    // such as docker0, which often reaches only this machine
};

std::vector<InterfaceAddress> interface_addresses();

// "10.0.0.1 (eth0), 172.17.0.1 (docker0)", without loopback interfaces; "none" if no other interface is up.
std::string shown(std::span<const InterfaceAddress> addresses);

}  // namespace tithe
