// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures the links between ranks: each pair alone, and all ranks at once.
//
//   - kept: a failed link has the reason in its row; the other links are still measured.
//   - alone: pairs are measured one after the other, so each has the links to itself.
//   - together: all ranks send to the right, that is to the next host, so that every link is used in both directions.
//     They send in rounds after a pause, as in training, since TCP gives a burst less than a long stream.
//   - all to all: rounds in which all ranks send the same amount to all ranks on other hosts alternate with these.
//   - mutual: all ranks send to all, synchronously, so that traffic to a rank meets traffic from it.
//   - late: a long message whose receive is posted after it would have arrived, to find out whether the transport waits
//     for the receive.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::bench {

// A link from one rank to another, measured by the receiver. All zeros: not measured yet.
struct FoundLink {
  double latency = 0;           // seconds, one way, of a small message, without the CPU time of the two ranks
  double bytes_per_second = 0;  // 0 if it failed
  double code = 0;              // the error, as a Code; 0: none
  bool failed() const { return code != 0; }
};

struct LinkOptions {
  std::size_t bulk_bytes = std::size_t{1} << 24;  // size of the messages that measure the rate
  int bulk_messages = 20;                         // while all send, without the first ones
  double patience = 10;  // seconds without a message after which a link counts as failed
};

// Measurements of one rank in addition to the links; 0 if unknown.
struct FoundTogether {
  double rate = 0;    // bytes per second received while all ranks sent to the right
  double mutual = 0;  // likewise, while all sent to all
  // Rate of a round to all divided by that of a round to the right: below 1 if many-to-one is slower.
  double all_to_all_ratio = 0;
  // The time of a long message after its receive was posted, as a share of its whole time; on one rank, else 0.
  double late = 0;
  double turn = 0;  // CPU seconds of this rank for a small message there and back
};

// Buffers for the messages. They must outlive the transport, since a failed message may still be posted.
struct LinkBuffers {
  std::vector<std::uint8_t> small, large, in;
};

// Options for links of about this rate, in bytes per second: long enough to average out bursts, and about a second on a
// slow link.
LinkOptions options_for(double bytes_per_second);

// How ranks synchronize; the functions return false after a rank has failed.
struct Barriers {
  std::function<bool()> barrier;
  std::function<bool()> share;  // a barrier after which each rank has all rows
};

// `links`: world x world rows, sender first; each rank fills the rows to itself. kCancelled if a rank has failed.
// Errors of the transport are in the rows.
Status measure_links(Transport& transport, const LinkOptions& options, const Barriers& barriers,
                     LinkBuffers& buffers, std::span<FoundLink> links, FoundTogether& together);

}  // namespace tithe::bench
