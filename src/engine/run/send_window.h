// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pacer says which frame leaves next, so that a queue in the network need not. It stands between the queue, which
// says what could leave, and the transport, which takes whatever it is given: without a pacer a rank feeds all its
// peers at once, and where the frames of all ranks meet, a switch that holds less than they are drops some.
//
//   windowed   at most `window` bytes are under way to one peer. A frame that is longer goes alone
//   turned     with rotation at most so many peers are fed at once, usually one: in turn t rank me + 1 + t, modulo the
//              world. A turn is over once `window` bytes were given in it, or nothing waits for its peer. Frames that
//              fit into one window together go together, to whomever
//   ordered    to one peer, what is most urgent leaves first; of equals, what comes first in the order of all parts
//   first      what comes before all that is under way leaves at once, whatever the windows say
//   steady     once it knows how many frames a round may have, it allocates nothing
//   drained    what is withdrawn leaves nothing behind
//
// Turns. No rank tells another one whose turn it is. All begin with turn 0, in which no two ranks feed the same peer; a
// turn lasts as long as its bytes take; and links that are alike take equal bytes in equal time. A rank that comes late
// shares a link with the one whose turn it is there: both take longer, and nobody waits for a link that is idle.
//
// Why windows cannot deadlock. Let all parts of all buckets of a round stand in one order: bucket by bucket, as handed
// over, and in a bucket as the plan has them. It is the same on all ranks, and they begin parts of a bucket in it
// (program.h, "Window"; it says when receives are posted, and they stay). So a frame that is under way to a rank that
// has begun its part arrives, and its window opens again. A frame can stand still for one reason alone: its receiver
// has not begun the part. Suppose that something stands still for ever, and take the first part, in that order, of
// which a frame is missing anywhere. All parts before it are complete everywhere; so every rank has been able to begin
// it (a caller waits for nothing but earlier buckets first), and has posted its receives. On no rank is a frame of an
// earlier part under way. So on every rank a frame of this part leaves as soon as it is ready ("first": a window is
// full of later parts, or of this one, whose frames arrive). Then the part goes on as its graph does without a pacer,
// and completes: nothing is missing after all.
//
// "Under way" ends where the transport completes a send. That is worth something only if it says so when the bytes have
// arrived, not when a socket's buffer holds them: Transport::window() asks for this.
//
// A value: no threads, no clock, no transport. The runner asks it, under its mutex.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::engine {

struct Pacing {
  std::size_t window = 0;    // bytes; 0: no pacer
  std::size_t rotation = 0;  // peers that are fed at once; 0: all
  bool on() const { return window > 0; }
  friend bool operator==(const Pacing&, const Pacing&) = default;
};

// "off", or "window=BYTES", or that and ",rotation=on" (1), "off" (0: the default) or a number of peers. kInvalid for
// anything else, with the cure.
Result<Pacing> parse_pacing(std::string_view text);

class Pacer {
 public:
  struct Send {
    std::int64_t urgency = 0;
    std::uint64_t order = 0;  // of its part: bucket by bucket, as handed over
    OpId op = 0;
    Rank peer = 0;
    std::size_t bytes = 0;
  };

  Pacer(const Pacing& pacing, Rank me, int world);

  bool on() const { return pacing_.on(); }
  // A round may have so many more frames to each rank, and so many more parts.
  void expect(std::span<const std::size_t> frames, std::size_t parts);
  void offer(const Send& send);  // it may leave
  // The one that leaves now, if any may. It is under way afterwards.
  std::optional<Send> next();
  bool has_next() const { return choose().has_value(); }
  void done(const Send& send);  // it is no longer under way
  void drop();                  // what waits will not leave

  std::size_t waiting() const { return waiting_; }
  std::size_t under_way() const { return bytes_; }  // bytes

 private:
  // Parts, and how many frames of each.
  class Parts {
   public:
    void reserve(std::size_t parts) { parts_.reserve(parts); }
    void add(std::uint64_t order);
    void remove(std::uint64_t order);
    void clear() { parts_.clear(); }
    std::uint64_t first() const;  // of the order; more than any, if there is none

   private:
    struct Count {
      std::uint64_t order = 0;
      std::size_t frames = 0;
    };
    std::vector<Count> parts_;
  };
  struct Line {                // to one peer
    std::vector<Send> heap;    // what waits, what leaves first on top
    std::size_t expected = 0;  // at most
    std::size_t bytes = 0;     // under way
    std::size_t frames = 0;    // of so many
  };
  struct Choice {
    std::size_t turn = 0;
    std::size_t at = 0;  // in the heap; not the top: it goes before all
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
  std::size_t given_ = 0;  // bytes, in this turn
  std::size_t bytes_ = 0;  // under way
  std::size_t fed_ = 0;    // peers to which something is
  std::size_t waiting_ = 0;
};

}  // namespace tithe::engine
