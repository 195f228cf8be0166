// SPDX-License-Identifier: Apache-2.0
#pragma once
// How fast the links between ranks are: of each pair alone, and while all send at once.
//
//   kept      a link that fails has the reason in its row; all others are measured
//   alone     pairs take turns, so that what is measured is alone on the links
//   together  then all ranks send to their right, on the next host, so that every link carries messages in both
//             directions: in rounds as a step's, after a pause, since TCP gives a burst less than a long stream
//   crowded   in turns with these, rounds in which all send as much to all on other hosts
//   mutual    then all send to all, in step: what goes to a rank meets what comes from it
//   late      at last, a long message to one who posts its receive when it would have come: whether it waited for that
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::bench {

// From one rank to another, as the receiver found it. All zeros: not measured yet.
struct FoundLink {
  double latency = 0;           // seconds, of a small message, one way, beside what the two ranks do for it
  double bytes_per_second = 0;  // 0 where it failed
  double code = 0;              // why it failed: a Code; 0: it did not
  bool failed() const { return code != 0; }
};

struct LinkOptions {
  std::size_t bulk_bytes = std::size_t{1} << 24;  // of a message whose rate counts
  int bulk_messages = 20;                         // while all send, beside the first ones
  double patience = 10;                           // seconds without a message after which a link has failed
};

// A rank's findings beside them; 0 where one is not known.
struct FoundTogether {
  double rate = 0;    // bytes per second that it received while all sent to their right
  double mutual = 0;  // while all sent to all
  double crowded =
      0;  // of the time of a round to all, what one to the right takes: 1 or less where many to one costs
  double late = 0;  // of the time of a long message, what it took from its receive on; of one rank, else 0
  double turn = 0;  // seconds of its own for a small message there and back
};

// The memory that messages are read into and sent from. It must live as long as the transport: a message that failed
// may still be posted.
struct LinkRoom {
  std::vector<std::uint8_t> small, large, in;
};

// Options for links of about so many bytes per second: long enough that a link's bursts do not count, short enough for
// a slow one, for about a second.
LinkOptions options_for(double bytes_per_second);

// How ranks wait for each other; false where one has given up.
struct Meetings {
  std::function<bool()> barrier;
  std::function<bool()> share;  // the same; afterwards each rank has the rows of all
};

// `links`: world x world rows, the sender's number first, of which each rank fills those to itself. kCancelled if a
// rank has given up; what a transport reports is in the rows.
Status measure_links(Transport& transport, const LinkOptions& options, const Meetings& meetings,
                     LinkRoom& room, std::span<FoundLink> links, FoundTogether& together);

}  // namespace tithe::bench
