// SPDX-License-Identifier: Apache-2.0
#include "transport/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>

namespace tithe {

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> out;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return out;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6)) continue;
    const void* at = family == AF_INET6 ? static_cast<const void*>(&v6)
                                        : &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr;
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, at, text, sizeof text) == nullptr) continue;
    std::error_code ignored;
    out.push_back(
        {.interface = i->ifa_name,
         .address = text,
         .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0,
         .bridge = std::filesystem::exists(fmt::format("/sys/class/net/{}/bridge", i->ifa_name), ignored)});
  }
  freeifaddrs(all);
  return out;
}

std::string shown(std::span<const InterfaceAddress> addresses) {
  std::string text;
  for (const InterfaceAddress& a : addresses)
    if (!a.loopback) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", a.address, a.interface);
  return text.empty() ? "none" : text;
}

}  // namespace tithe
