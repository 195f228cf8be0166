// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages of ranks on the control channel, each in one frame of at most kControlBytes
// (docs/reference/format_control.md, "Control"):
//   card       before the first round of a layout: everything that ranks must agree on
//   farewell   the session is over: why, and which rank is to blame
//   evidence   right before a farewell: how this rank knows, and whom it does not hear
//   ask        a rank that waits wants to know how the other is; it says how it is itself
//   here       the answer to an ask
//   done       how far this rank is: rounds whose work it has ended, rounds that it has begun
//   fragment   a piece of the choices that rank 0 proposes (engine/peers/reconfiguration.h)
//   answer     whether this rank can serve them
//   decision   when all ranks take them, or that none does
//   echo       to one who does not hear a rank that this one hears: that rank's farewell and evidence; or that this one
//              does not hear it either
//   announcement  a bucket, or the end of a round, that the sender's own rounds so far do not foretell
//                 (engine/run/bucket_order.h)
#include <chrono>
#include <string>
#include <vector>

#include "engine/peers/failure_report.h"
#include "frame/tagger.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

inline constexpr std::size_t kControlBytes = 1024;
inline constexpr std::size_t kMostControlText = 400;
inline constexpr std::size_t kMostEchoText = 300;
inline constexpr std::size_t kMostUnheard = 256;
inline constexpr std::size_t kMostFragment = 900;  // bytes of a text

enum class ControlKind : std::uint8_t {
  kCard = 0,
  kFarewell = 1,
  kEvidence = 2,
  kAsk = 3,
  kHere = 4,
  kDone = 5,
  kFragment = 6,
  kAnswer = 7,
  kDecision = 8,
  kEcho = 9,
  kAnnouncement = 10
};

// One bucket that a rank hands over, or the end of its round.
struct Announcement {
  std::uint64_t ended = 0;  // rounds whose work the rank had ended before, in this session
  std::uint32_t place = 0;  // buckets of the same round before this one
  bool is_end = false;      // the round has no further bucket: the last three fields are 0
  std::uint64_t round = 0;  // as frames number it
  std::uint64_t job = 0;    // hash of the job, and of the states that the rank goes on from
  std::uint64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t layout = 0;  // as in Card
  friend bool operator==(const Announcement&, const Announcement&) = default;
};
inline constexpr std::uint32_t kNoPlace = 0xffffffff;

struct Card {
  std::uint32_t number = 0;  // of the layout, counted from 0 on every rank
  std::uint32_t world = 0;
  std::uint64_t run = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t layout = 0;  // hash of keys, sizes and types
  std::uint64_t plan = 0;    // Plan::hash
  std::uint64_t round = 0;
  std::uint64_t ended = 0;         // Announcement::ended of the layout's first bucket
  std::uint32_t place = kNoPlace;  // its place in that round; kNoPlace: the card comes before the round
  std::uint64_t job = 0;           // Announcement::job
  std::uint64_t proposed_job = 0;  // the number of a job that begins, from rank 0; not compared
  std::uint8_t average = 0;
  std::string codec;  // codec, schedule and choices (engine/peers/session_config.h)
  std::string strategy;
};

// The bucket that the card stands for.
inline Announcement entry_of(const Card& card) {
  return {.ended = card.ended,
          .place = card.place,
          .round = static_cast<std::uint32_t>(card.round),
          .job = card.job,
          .tensors = card.tensors,
          .values = card.values,
          .layout = card.layout};
}

// How a rank is, as it says in `ask` and `here`.
struct Report {
  enum class State : std::uint8_t { kIdle = 0, kWorks = 1, kWaits = 2 };
  std::uint32_t number = 0;  // of the ask; an answer repeats it
  std::uint32_t round = 0;
  State state = State::kIdle;        // idle: the application has handed nothing over
  Rank waits_for = Status::kNoPeer;  // the receiver, if it is awaited; else the first awaited rank
  std::uint64_t received = 0,
                sent = 0;  // payload bytes of this session's frames, from and to the one who is told
  std::uint32_t told = 0;  // control messages to the one who is told, before this one
};

struct Farewell {
  Code code{};
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;  // the first that its sender has not committed
  bool finite = true;       // the last that it has committed was, on all ranks
  std::string what = {};
};

struct Evidence {
  Finding finding{};
  Rank witness = Status::kNoPeer;
  std::vector<Rank> unheard;
};

struct Echo {
  Rank of = 0;
  bool spoke = false;  // what it said is known
  FailureReport failure_report;
};

struct Fragment {
  std::uint32_t number = 0;  // of the proposal, counted from 1
  std::uint32_t first = 0;   // where it stands in the text
  std::uint32_t whole = 0;   // bytes of the text
  std::string piece;         // kMostFragment of them, the last one fewer
};

struct Answer {
  std::uint32_t number = 0;
  std::uint64_t hash = 0;  // Choices::hash, as this rank reads them
  Code code{};             // kOk: it is ready
  std::string why = {};
};

struct Decision {
  std::uint32_t number = 0;
  // The choices count once so many rounds have ended since the session began; 0: they never will.
  std::uint64_t after = 0;
  Code code{};  // why not
  Rank blamed = Status::kNoPeer;
  std::string why = {};
};

// By so much at least is a rank late: less is noise.
inline constexpr std::chrono::milliseconds kLeastLate{5};

struct Done {
  std::uint64_t ended = 0;  // rounds whose work the sender has ended since the session began
  std::uint64_t begun = 0;  // rounds that it has begun; `ended`, or one more
  std::uint64_t away_ns =
      0;               // in the last round that it has ended: what its caller took to hand all buckets over
  bool finite = true;  // that round was, as far as the sender can tell
  friend bool operator==(const Done&, const Done&) = default;
};

struct Control {
  ControlKind kind{};
  Announcement announcement = {};
  Card card = {};
  Farewell farewell = {};
  Evidence evidence = {};
  Echo echo = {};
  Report report = {};
  Done done = {};
  Fragment fragment = {};
  Answer answer = {};
  Decision decision = {};
};

// The rank that writes or reads: its messages carry tags where there are any.
struct ControlIdentity {
  Rank me = 0;
  int world = 1;
  Tags* tags = nullptr;
};

// Texts that are too long are cut. Returns the bytes of the frame.
std::size_t write_card(const Card& card, const ControlIdentity& identity, Bytes out);
std::size_t write_farewell(const Farewell& farewell, const ControlIdentity& identity, Bytes out);
std::size_t write_evidence(const Evidence& evidence, const ControlIdentity& identity, Bytes out);
std::size_t write_echo(const Echo& echo, const ControlIdentity& identity, Bytes out);
std::size_t write_report(ControlKind kind, const Report& report, const ControlIdentity& identity,
                         Bytes out);  // kAsk or kHere
std::size_t write_done(const Done& done, const ControlIdentity& identity, Bytes out);
std::size_t write_fragment(const Fragment& fragment, const ControlIdentity& identity, Bytes out);
std::size_t write_answer(const Answer& answer, const ControlIdentity& identity, Bytes out);
std::size_t write_decision(const Decision& decision, const ControlIdentity& identity, Bytes out);
std::size_t write_announcement(const Announcement& announcement, const ControlIdentity& identity, Bytes out);

// Numbers of tagged messages that a peer has used. A message may overtake others, up to 63 of them; none counts twice.
class ReplayWindow {
 public:
  bool take(std::uint64_t number);  // false: it was used, or is too old to tell

 private:
  std::uint64_t top_ = 0;   // the highest that was taken
  std::uint64_t seen_ = 1;  // bit k: top_ - k was taken
};

// Reads a message of `peer`. Where there are tags, kCorrupt without a peer for a message that has not the right one,
// that names another source, or whose number was used: it is not from `peer`, and nobody is to blame. Else kCorrupt
// that names `peer` for bytes that are no control message of this world. Texts are printable UTF-8.
Result<Control> read_control(ByteView frame, const ControlIdentity& identity, Rank peer, ReplayWindow& used);

// Ok where all are equal; else kMismatch that names the ranks which differ from most, and in what. A tie
// goes to the side of the lowest rank.
Status compare_cards(const std::vector<Card>& cards);
// The same for one place of a round, by rank; null: this rank's is not known yet. Ok also where ranks differ and no
// side has most ranks of the world, as long as some are not known.
Status compare_announcements(const std::vector<const Announcement*>& all);

}  // namespace tithe::engine
