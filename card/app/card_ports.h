// SPDX-License-Identifier: Apache-2.0
#pragma once
// Network interfaces as ports of a card: whole Ethernet frames, without frame check sequence.
//
//   - TAP: an interface that does not exist is created, and removed when this process ends. The host's stack segments
//     packets and computes checksums itself, as for a card without offloads.
//   - packet socket: an existing interface belongs to the card from then on. It is up, promiscuous, without ARP, IPv6
//     and offloads; frames that the host's stack sends there bypass the card. A checksum that was left to hardware is
//     completed, and a VLAN tag that the kernel has removed is restored.
#include <memory>
#include <string>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::cli {

inline constexpr std::size_t kMaxPortFrame = 65536 + 64;  // an unsegmented GSO packet, with headers

class CardPort {
 public:
  virtual ~CardPort() = default;
  virtual int descriptor() const = 0;
  // Reads one frame into `room`, of kMaxPortFrame bytes. Returns its size; 0: there is none, or the link is down. kIo:
  // the interface has disappeared.
  virtual Result<std::size_t> read(Bytes room) = 0;
  // False if the interface does not accept the frame: it is down, its queue is full, or the frame is invalid.
  virtual bool write(ByteView frame) = 0;
};

Result<std::unique_ptr<CardPort>> open_port(const std::string& interface);

}  // namespace tithe::cli
