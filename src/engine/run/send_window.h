// SPDX-License-Identifier: Apache-2.0
#pragma once
// The send window limits the bytes in flight to each peer and orders the frames. It sits between the queue, which has
// the ready frames, and the transport, which accepts every frame. Without a send window a rank sends to all peers at
// once, and a switch with shallow buffers drops frames where the traffic of several ranks joins.
//
//   windowed   at most `window` bytes are in flight to one peer. A longer frame is sent alone
//   turned     with rotation=N at most N peers, usually one, receive at a time: in turn t rank me + 1 + t, modulo the
//              world. A turn ends after `window` bytes, or when no frame waits for its peer. Frames that
//              fit into one window together are sent together, to any peer
//   ordered    to one peer, the most urgent frame leaves first; of equals, the first in the order of all parts
//   first      a frame that precedes all frames in flight leaves at once, in spite of the windows
//   steady     after the first round with its number of frames, it allocates nothing
//   drained    drop() and done() leave no trace of a frame
//
// Rotation. Ranks exchange no message about turns. All begin with turn 0, in which no two ranks send to the same
// peer. A turn lasts until its bytes are sent, so links of equal rate change turns at the same time. A late rank
// shares a link with the rank whose turn it is there: both take longer, and no link is idle while a frame waits.
//
// Why windows cannot deadlock. Put all parts of all buckets of a round in one order: buckets in the order of
// hand-over, and parts in the order of the plan. The order is the same on all ranks, and every rank begins parts in
// it (program.h, "Window"). A rank posts all receives of a part when it begins the part, and the receives stay
// posted. So a frame in flight to a rank that has begun its part arrives, and its window opens again. A frame can
// block only if its receiver has not begun the part. Suppose that a frame blocks for ever, and take the first part,
// in that order, that misses a frame on any rank. All earlier parts are complete on all ranks. So every rank
// was able to begin this part (a caller waits only for earlier buckets) and has posted its receives. No rank has a
// frame of an earlier part in flight. So every rank sends a frame of this part as soon as it is ready: the promise
// "first" applies if the window is full of later parts, and frames of this part arrive. Then the part continues as
// its graph does without a send window, and completes, which contradicts the assumption.
//
// A frame is in flight until the transport completes its send. So the transport must complete a send when its bytes
// arrive, not when a socket's buffer holds them: Transport::window() requests this.
//
// A value type without threads, clock or transport. The runner calls it under its mutex.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::engine {

struct Pacing {
  std::size_t window = 0;    // bytes; 0: no send window
  std::size_t rotation = 0;  // peers that receive at a time; 0: all
  bool on() const { return window > 0; }
  friend bool operator==(const Pacing&, const Pacing&) = default;
};

// Parses "off" or "window=BYTES", optionally with ",rotation=on" (1 peer), ",rotation=off" (the default) or
// ",rotation=PEERS". Any other text is kInvalid.
Result<Pacing> parse_pacing(std::string_view text);

class SendWindow {
 public:
  struct Send {
    std::int64_t urgency = 0;
    std::uint64_t order = 0;  // of its part: by bucket, then by part
    OpId op = 0;
    Rank peer = 0;
    std::size_t bytes = 0;
  };

  SendWindow(const Pacing& pacing, Rank me, int world);

  bool on() const { return pacing_.on(); }
  // Reserves memory for `frames` more frames to each rank, and `parts` more parts, in a round.
  void expect(std::span<const std::size_t> frames, std::size_t parts);
  void offer(const Send& send);  // adds a frame that is ready
  // Returns the frame that must leave now, if there is one. It is then in flight.
  std::optional<Send> next();
  bool has_next() const { return choose().has_value(); }
  void done(const Send& send);  // it is no longer in flight
  void drop();                  // discards the waiting frames

  std::size_t waiting() const { return waiting_; }
  std::size_t under_way() const { return bytes_; }  // bytes

 private:
  // A set of parts with the number of frames of each.
  class Parts {
   public:
    void reserve(std::size_t parts) { parts_.reserve(parts); }
    void add(std::uint64_t order);
    void remove(std::uint64_t order);
    void clear() { parts_.clear(); }
    std::uint64_t first() const;  // the smallest order; the maximum if there is none

   private:
    struct Count {
      std::uint64_t order = 0;
      std::size_t frames = 0;
    };
    std::vector<Count> parts_;
  };
  struct Line {                // the frames to one peer
    std::vector<Send> heap;    // waiting frames; the first to leave is the top
    std::size_t expected = 0;  // the most frames per round
    std::size_t bytes = 0;     // in flight
    std::size_t frames = 0;    // in flight
  };
  struct Choice {
    std::size_t turn = 0;
    std::size_t at = 0;  // index in the heap; not 0 only for the promise "first"
  };
  Line& at(std::size_t turn) { return lines_[turn]; }
  std::size_t turn_of(Rank peer) const;
  bool fits(const Line& line) const;
  std::optional<Choice> choose() const;

  Pacing pacing_;
  Rank me_;
  int world_;
  std::vector<Line> lines_;  // by turn
  Parts waits_, under_way_;
  std::size_t expected_parts_ = 0;
  std::size_t turn_ = 0;
  std::size_t given_ = 0;  // bytes sent in this turn
  std::size_t bytes_ = 0;  // in flight
  std::size_t fed_ = 0;    // peers with frames in flight
  std::size_t waiting_ = 0;
};

}  // namespace tithe::engine
