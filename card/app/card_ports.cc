// SPDX-License-Identifier: Apache-2.0
// The two kinds of CardPort: a TAP interface, and a packet socket on an existing interface. The packet socket uses
// PACKET_VNET_HDR, which describes offloaded checksums, and PACKET_AUXDATA, which holds a removed VLAN tag.
#include "card_ports.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/unique_fd.h"
#include "card/model/headers.h"

namespace tithe::cli {
namespace {

// A kernel queue larger than any before a link, so that drops happen at the link and not here.
constexpr int kSocketBytes = 16 << 20;
constexpr std::size_t kTagAt = 12, kTagBytes = 4;

// The header that PACKET_VNET_HDR puts before a frame. linux/virtio_net.h, which defines it, is not valid C++.
struct Offload {
  std::uint8_t flags = 0, kind = 0;
  std::uint16_t header_bytes = 0, segment_bytes = 0;
  // With kNeedsSum: the start of the summed bytes, and the offset of the checksum from there.
  std::uint16_t sum_start = 0, sum_at = 0;
};
static_assert(sizeof(Offload) == 10);
constexpr std::uint8_t kNeedsSum = 1;

Status failed(std::string_view interface, std::string_view what) {
  return {Code::kIo, fmt::format("{}: {}: {}{}", interface, what, std::strerror(errno),
                                 errno == EPERM || errno == EACCES ? " (root is required)" : "")};
}

ifreq request(const std::string& interface) {
  ifreq r{};
  interface.copy(r.ifr_name, IFNAMSIZ - 1);
  return r;
}

class Tap final : public CardPort {
 public:
  Tap(std::string name, UniqueFd fd) : name_(std::move(name)), fd_(std::move(fd)) {}
  int descriptor() const override { return fd_.get(); }
  Result<std::size_t> read(Bytes room) override {
    const ssize_t n = ::read(fd_.get(), room.data(), room.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EBADFD || errno == EIO) return failed(name_, "the interface was removed");
    return std::size_t{0};
  }
  bool write(ByteView frame) override {
    return ::write(fd_.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
  }

 private:
  std::string name_;
  UniqueFd fd_;
};

class PacketSocket final : public CardPort {
 public:
  PacketSocket(std::string name, UniqueFd fd) : name_(std::move(name)), fd_(std::move(fd)) {}
  int descriptor() const override { return fd_.get(); }

  Result<std::size_t> read(Bytes room) override {
    Offload offload;
    // Leaves room for a VLAN tag that the kernel has removed.
    std::array<iovec, 2> parts{iovec{&offload, sizeof offload},
                               iovec{room.data() + kTagBytes, room.size() - kTagBytes}};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(tpacket_auxdata))> aside{};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = aside.data();
    message.msg_controllen = aside.size();
    const ssize_t n = recvmsg(fd_.get(), &message, 0);
    if (n < 0 && errno == ENETDOWN && if_nametoindex(name_.c_str()) == 0)
      return failed(name_, "the interface was removed");
    if (n <= static_cast<ssize_t>(sizeof offload) || (message.msg_flags & MSG_TRUNC) != 0)
      return std::size_t{0};
    const std::size_t bytes = static_cast<std::size_t>(n) - sizeof offload;
    const Bytes frame = room.subspan(kTagBytes, bytes);
    complete(frame, offload);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata about{};
      std::memcpy(&about, CMSG_DATA(c), sizeof about);
      if ((about.tp_status & TP_STATUS_VLAN_VALID) == 0 || bytes < kTagAt) continue;
      std::memmove(room.data(), frame.data(), kTagAt);
      const bool reports_kind = (about.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
      card::set_word(room, kTagAt, reports_kind ? about.tp_vlan_tpid : ETHERTYPE_VLAN);
      card::set_word(room, kTagAt + 2, about.tp_vlan_tci);
      return bytes + kTagBytes;
    }
    std::memmove(room.data(), frame.data(), bytes);
    return bytes;
  }

  bool write(ByteView frame) override {
    Offload offload;
    std::array<iovec, 2> parts{iovec{&offload, sizeof offload},
                               iovec{const_cast<std::uint8_t*>(frame.data()), frame.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return sendmsg(fd_.get(), &message, 0) >= 0;
  }

 private:
  // The checksum field holds the sum of the pseudo header, to which the rest is added.
  static void complete(Bytes frame, const Offload& offload) {
    const std::size_t start = offload.sum_start, at = start + offload.sum_at;
    if ((offload.flags & kNeedsSum) == 0 || at + 2 > frame.size()) return;
    const unsigned sum = ~card::sum_of(frame.subspan(start)) & 0xffffU;
    constexpr unsigned kOfUdp = 6;  // in UDP, 0 means no checksum
    card::set_word(frame, at, sum == 0 && offload.sum_at == kOfUdp ? 0xffffU : sum);
  }

  std::string name_;
  UniqueFd fd_;
};

// Some interfaces lack some offloads, and disabling one that is off may fail; errors are ignored.
void offloads_off(int socket, const std::string& interface) {
  for (const std::uint32_t what :
       {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM, ETHTOOL_SRXCSUM}) {
    ethtool_value off{.cmd = what, .data = 0};
    ifreq r = request(interface);
    r.ifr_data = reinterpret_cast<char*>(&off);
    static_cast<void>(ioctl(socket, SIOCETHTOOL, &r));
  }
}

// A persistent TAP interface that was created earlier.
bool is_tap(const std::string& interface) {
  const UniqueFd fd = UniqueFd::from([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifreq r = request(interface);
  r.ifr_data = reinterpret_cast<char*>(&driver);
  return ioctl(fd.get(), SIOCETHTOOL, &r) == 0 && std::strcmp(driver.driver, "tun") == 0;
}

Result<std::unique_ptr<CardPort>> open_tap(const std::string& interface) {
  UniqueFd fd = UniqueFd::from([] { return open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC); });
  if (fd.get() < 0) return failed(interface, "/dev/net/tun");
  ifreq r = request(interface);
  r.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd.get(), TUNSETIFF, &r) != 0) return failed(interface, "a TAP interface");
  return std::unique_ptr<CardPort>(std::make_unique<Tap>(interface, std::move(fd)));
}

Result<std::unique_ptr<CardPort>> open_packet_socket(const std::string& interface) {
  UniqueFd fd = UniqueFd::from([] { return socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd.get() < 0) return failed(interface, "a packet socket");
  const int on = 1;
  for (const int option : {PACKET_VNET_HDR, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING})
    if (setsockopt(fd.get(), SOL_PACKET, option, &on, sizeof on) != 0)
      return failed(interface, "a packet socket");
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE})
    if (setsockopt(fd.get(), SOL_SOCKET, option, &kSocketBytes, sizeof kSocketBytes) != 0)
      return failed(interface, "a packet socket's queue");
  offloads_off(fd.get(), interface);
  // Missing if the kernel has no IPv6.
  std::ofstream("/proc/sys/net/ipv6/conf/" + interface + "/disable_ipv6") << 1;
  ifreq r = request(interface);
  if (ioctl(fd.get(), SIOCGIFFLAGS, &r) != 0) return failed(interface, "its flags");
  r.ifr_flags = static_cast<short>(r.ifr_flags | IFF_UP | IFF_NOARP | IFF_PROMISC);
  if (ioctl(fd.get(), SIOCSIFFLAGS, &r) != 0) return failed(interface, "its flags");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return failed(interface, "a packet socket");
  return std::unique_ptr<CardPort>(std::make_unique<PacketSocket>(interface, std::move(fd)));
}

}  // namespace

Result<std::unique_ptr<CardPort>> open_port(const std::string& interface) {
  if (interface.empty() || interface.size() >= IFNAMSIZ || interface.find('/') != std::string::npos)
    return Status(Code::kInvalid, fmt::format("'{}' is not a valid interface name", interface));
  const bool there = if_nametoindex(interface.c_str()) != 0;
  return there && !is_tap(interface) ? open_packet_socket(interface) : open_tap(interface);
}

}  // namespace tithe::cli
