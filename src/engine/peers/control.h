// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages of ranks on the control channel, each in one frame of at most kControlBytes
// (docs/reference/format_control.md, "Control"):
//   card       before the first round of a layout: everything that ranks must agree on
//   farewell   the session ends: the reason and the blamed rank
//   evidence   precedes a farewell: the finding, its witness, and the ranks that are silent to the sender
//   ask        a waiting rank asks a peer for its state, and reports its own
//   here       the answer to an ask
//   done       the sender's progress: rounds whose work it has ended, and rounds that it has begun
//   fragment   a piece of the choices that rank 0 proposes (engine/peers/reconfiguration.h)
//   answer     whether the sender can use these choices
//   decision   the round at which all ranks switch to them, or that no rank does
//   echo       forwards the farewell and evidence of a third rank to a rank that receives nothing from it; or says that
//              the third rank is silent to the sender too
//   announcement  a bucket, or the end of a round, that the previous rounds do not predict (engine/run/bucket_order.h)
#include <chrono>
#include <string>
#include <vector>

#include "engine/peers/failure_report.h"
#include "frame/tagger.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

inline constexpr std::size_t kControlBytes = 1024;
inline constexpr std::size_t kMaxControlText = 400;
inline constexpr std::size_t kMaxEchoText = 300;
inline constexpr std::size_t kMaxSilentPeers = 256;
inline constexpr std::size_t kMaxFragment = 900;  // bytes of a fragment's text

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

// A bucket that a rank has handed over, or the end of its round.
struct Announcement {
  std::uint64_t ended = 0;  // rounds of this session whose work the rank had ended
  std::uint32_t place = 0;  // the number of earlier buckets in the round
  bool is_end = false;      // no further bucket; the last three fields are 0
  std::uint64_t round = 0;  // the round number in frames
  std::uint64_t job = 0;    // hash of the job and of the states from which the rank resumed
  std::uint64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t layout = 0;  // as in Card
  friend bool operator==(const Announcement&, const Announcement&) = default;
};
inline constexpr std::uint32_t kNoPlace = 0xffffffff;

struct Card {
  std::uint32_t number = 0;  // of the layout, from 0
  std::uint32_t world = 0;
  std::uint64_t run = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t layout = 0;  // hash of keys, sizes and types
  std::uint64_t plan = 0;    // Plan::hash
  std::uint64_t round = 0;
  std::uint64_t ended = 0;         // Announcement::ended of the layout's first bucket
  std::uint32_t place = kNoPlace;  // its place in that round; kNoPlace: sent before the round
  std::uint64_t job = 0;           // Announcement::job
  std::uint64_t proposed_job = 0;  // from rank 0, for a new job; not compared
  std::uint8_t average = 0;
  std::string codec;  // codec, schedule and choices (session_config.h)
  std::string strategy;
};

// The announcement of the bucket with which the card was sent.
inline Announcement entry_of(const Card& card) {
  return {.ended = card.ended,
          .place = card.place,
          .round = static_cast<std::uint32_t>(card.round),
          .job = card.job,
          .tensors = card.tensors,
          .values = card.values,
          .layout = card.layout};
}

// A rank's state, in `ask` and `here`.
struct Report {
  enum class State : std::uint8_t { kIdle = 0, kWorks = 1, kWaits = 2 };
  std::uint32_t number = 0;  // of the ask; an answer repeats it
  std::uint32_t round = 0;
  State state = State::kIdle;        // idle: the application has handed over no bucket
  Rank waits_for = Status::kNoPeer;  // the receiver, if the sender awaits it; else the first awaited rank
  // Bytes of frames in this session, from and to the receiver.
  std::uint64_t received = 0, sent = 0;
  std::uint32_t messages_sent = 0;  // number of earlier control messages to the receiver
};

struct Farewell {
  Code code{};
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;  // the first that the sender has not committed
  bool finite = true;       // its last committed round was finite on all ranks
  std::string what = {};
};

struct Evidence {
  Finding finding{};
  Rank witness = Status::kNoPeer;
  std::vector<Rank> silent_peers;
};

struct Echo {
  Rank of = 0;
  bool reported = false;  // its report is included
  FailureReport failure_report;
};

struct Fragment {
  std::uint32_t number = 0;  // of the proposal, from 1
  std::uint32_t first = 0;   // offset of the piece in the text
  std::uint32_t whole = 0;   // length of the text
  std::string piece;         // kMaxFragment bytes; the last piece may be shorter
};

struct Answer {
  std::uint32_t number = 0;
  std::uint64_t hash = 0;  // Choices::hash on the sender
  Code code{};             // kOk: the plans are built
  std::string why = {};
};

struct Decision {
  std::uint32_t number = 0;
  // The choices apply after `after` rounds of this session; 0: they are refused.
  std::uint64_t after = 0;
  Code code{};  // the reason of a refusal
  Rank blamed = Status::kNoPeer;
  std::string why = {};
};

// The smallest delay that counts as late; smaller ones are noise.
inline constexpr std::chrono::milliseconds kMinLate{5};

struct Done {
  std::uint64_t ended = 0;  // rounds of this session whose work the sender has ended
  std::uint64_t begun = 0;  // rounds that it has begun: `ended` or `ended` + 1
  // The time outside of the session in the last ended round, until all buckets were handed over.
  std::uint64_t away_ns = 0;
  bool finite = true;  // that round was finite on the sender
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

// The rank that writes or reads. Without tags, messages are not authenticated.
struct ControlIdentity {
  Rank me = 0;
  int world = 1;
  Tags* tags = nullptr;
};

// Long texts are cut. Returns the length of the frame.
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

// The numbers of tagged messages received from a peer. A message may overtake up to 63 others; a number is accepted
// once.
class ReplayWindow {
 public:
  bool take(std::uint64_t number);  // false: the number was used or is too old

 private:
  std::uint64_t top_ = 0;   // the highest accepted number
  std::uint64_t seen_ = 1;  // bit k: top_ - k was accepted
};

// Reads a message of `peer`. With tags, a message with a wrong tag, another source or a used number is kCorrupt
// without a peer: it is not from `peer`, and no rank is blamed. Other bytes that are not a control message of this
// world are kCorrupt and name `peer`. Texts are made printable UTF-8.
Result<Control> read_control(ByteView frame, const ControlIdentity& identity, Rank peer, ReplayWindow& used);

// Ok if all cards are equal; else kMismatch with the ranks that differ from the majority and their differences. In a
// tie, the side of the lowest rank counts as the majority.
Status compare_cards(const std::vector<Card>& cards);
// The same for the entries at one place of a round, by rank; null: not known yet. Ok also if ranks differ, some
// entries are unknown, and no side has a majority of the world.
Status compare_announcements(const std::vector<const Announcement*>& all);

}  // namespace tithe::engine
