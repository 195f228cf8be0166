// SPDX-License-Identifier: Apache-2.0
#pragma once
// Network interfaces as ends of a card: whole Ethernet frames, without their check sequence.
//
//   TAP      an interface that is not there is made, and goes with this process; its host's stack cuts segments and
//            sums them itself, as for a card that does neither
//   packet   an interface that is there belongs to the card from then on: it is up, promiscuous, without ARP and IPv6,
//            its offloads off, and what the stack would send there passes by the card. What comes with a checksum that
//            was left to hardware is completed, a VLAN tag that was taken aside is put back
#include <memory>
#include <string>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::cli {

inline constexpr std::size_t kMostPortFrame = 65536 + 64;  // a train of segments that nobody cut, and headers

class CardPort {
 public:
  virtual ~CardPort() = default;
  virtual int descriptor() const = 0;
  // One frame into `room`, of kMostPortFrame bytes. Bytes of it; 0: there is none now, or the link is down. kIo: the
  // interface is gone.
  virtual Result<std::size_t> read(Bytes room) = 0;
  // False where the interface does not take it now: it is down, its queue is full, or the frame is none.
  virtual bool write(ByteView frame) = 0;
};

Result<std::unique_ptr<CardPort>> open_port(const std::string& interface);

}  // namespace tithe::cli
