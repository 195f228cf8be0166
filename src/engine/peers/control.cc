// SPDX-License-Identifier: Apache-2.0
// fields() lists the fields of a message once, for Writer and Reader. The Reader validates each length, enum and rank,
// and a message must end with its last field. So arbitrary bytes give either a valid message or kCorrupt.
#include "engine/peers/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"
#include "tithe/choices.h"

namespace tithe::engine {
namespace {

constexpr std::uint32_t kControlTensor = 0xffffffff;

// Writes fields in order: numbers, an enum or a flag as one byte, a text as a u16 length and bytes.
class Writer {
 public:
  explicit Writer(Bytes out) : out_(out) {}
  template <typename... Fields>
  void operator()(const Fields&... each) {
    (field(each), ...);
  }
  void text(std::string_view s, std::size_t most) { raw(printable(s, most), most); }
  void raw(std::string_view s, std::size_t /*most*/) {
    field(static_cast<std::uint16_t>(s.size()));
    if (!s.empty()) std::memcpy(&out_[at_], s.data(), s.size());
    at_ += s.size();
  }
  std::size_t bytes() const { return at_; }

 private:
  template <typename T>
  void field(T v) {
    if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      field(static_cast<std::uint8_t>(v));
    } else {
      wire::put(&out_[at_], v);
      at_ += sizeof v;
    }
  }
  void field(const std::string& s) { text(s, kMaxControlText); }
  void field(const std::vector<Rank>& list) {
    const std::size_t n = std::min(list.size(), kMaxSilentPeers);
    field(static_cast<std::uint16_t>(n));
    for (std::size_t k = 0; k < n; ++k) field(static_cast<std::uint16_t>(list[k]));
  }

  Bytes out_;
  std::size_t at_ = kFrameHeaderBytes;
};

// Reads fields in order. If a field does not fit or is out of range, valid() returns false from then on.
class Reader {
 public:
  Reader(ByteView in, int world) : in_(in), world_(world) {}
  template <typename... Fields>
  void operator()(Fields&... each) {
    (field(each), ...);
  }
  void text(std::string& s, std::size_t most) {
    raw(s, most);
    s = printable(s, most);
  }
  void raw(std::string& s, std::size_t most) {
    std::uint16_t n = 0;
    field(n);
    if (!check(n <= most && in_.size() >= n)) return;
    s.assign(in_.begin(), in_.begin() + n);
    in_ = in_.subspan(n);
  }
  bool check(bool holds) { return valid_ = valid_ && holds; }
  bool valid() const { return valid_ && in_.empty(); }

 private:
  template <typename T>
  void field(T& v) {
    if (!check(in_.size() >= sizeof v)) return;
    v = wire::get<T>(in_.data());
    in_ = in_.subspan(sizeof v);
  }
  // One byte with an enum or a flag, whose largest value is `last`.
  template <typename E>
  void up_to(E& v, E last) {
    std::uint8_t n = 0;
    field(n);
    check(n <= static_cast<std::uint8_t>(last));
    v = static_cast<E>(n);
  }
  void field(bool& v) { up_to(v, true); }
  void field(Code& v) { up_to(v, Code::kCancelled); }
  void field(Finding& v) { up_to(v, Finding::kStuck); }
  void field(Report::State& v) { up_to(v, Report::State::kWaits); }
  void field(Rank& v) {
    std::int32_t n = 0;
    field<std::int32_t>(n);
    check(n >= Status::kNoPeer && n < world_);
    v = n;
  }
  void field(std::string& s) { text(s, kMaxControlText); }
  void field(std::vector<Rank>& list) {
    std::uint16_t n = 0;
    field(n);
    check(n <= kMaxSilentPeers);
    for (std::uint16_t k = 0; valid_ && k < n; ++k) {
      std::uint16_t rank = 0;
      field(rank);
      check(rank < world_);
      list.push_back(rank);
    }
  }

  ByteView in_;
  int world_;
  bool valid_ = true;
};

// The fields of each message in their order, for Writer and Reader.
void fields(auto& io, Card& c) {
  io(c.number, c.world, c.run, c.seed, c.tensors, c.values, c.layout, c.plan, c.round, c.ended, c.job,
     c.proposed_job, c.place, c.average, c.codec, c.strategy);
}
void fields(auto& io, Farewell& f) { io(f.code, f.blamed, f.round, f.finite, f.what); }
void fields(auto& io, Evidence& e) { io(e.finding, e.witness, e.silent_peers); }
void fields(auto& io, Echo& e) {
  FailureReport& t = e.failure_report;
  io(e.of, e.reported, t.finding, t.code, t.witness, t.blamed, t.round, t.finite, t.silent_peers);
  io.text(t.what, kMaxEchoText);
}
void fields(auto& io, Report& r) {
  io(r.number, r.round, r.state, r.waits_for, r.received, r.sent, r.messages_sent);
}
void fields(auto& io, Done& d) { io(d.ended, d.begun, d.away_ns, d.finite); }
void fields(auto& io, Fragment& f) {
  io(f.number, f.first, f.whole);
  io.raw(f.piece, kMaxFragment);
}
void fields(auto& io, Answer& a) { io(a.number, a.hash, a.code, a.why); }
void fields(auto& io, Decision& d) { io(d.number, d.after, d.code, d.blamed, d.why); }
void fields(auto& io, Announcement& a) {
  io(a.ended, a.round, a.job, a.tensors, a.values, a.layout, a.place, a.is_end);
}

// Writes the header of a message whose fields are in place, and a tag if the job has a key. Returns the message's
// size.
std::size_t seal(ControlKind kind, const ControlIdentity& identity, std::size_t bytes, Bytes out) {
  const FrameHeader h{.tensor = kControlTensor,
                      .phase = static_cast<std::uint8_t>(kind),
                      .source = static_cast<std::uint16_t>(identity.me),
                      .payload_bytes = bytes - kFrameHeaderBytes};
  Tags* tags = identity.tags;
  const Status s = tags == nullptr ? seal_frame(h, out)
                                   : seal_frame(h, out, tags->control(), tags->next_control(), Cover::kFrame);
  TITHE_ASSERT(s.ok());
  return !s.ok() ? 0 : tags == nullptr ? bytes : bytes + kFrameTrailerBytes;
}

std::size_t write(ControlKind kind, auto message, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  fields(w, message);
  return seal(kind, identity, w.bytes(), out);
}

}  // namespace

std::size_t write_card(const Card& card, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kCard, card, identity, out);
}
std::size_t write_farewell(const Farewell& farewell, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kFarewell, farewell, identity, out);
}
std::size_t write_evidence(const Evidence& evidence, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kEvidence, evidence, identity, out);
}
std::size_t write_echo(const Echo& echo, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kEcho, echo, identity, out);
}
std::size_t write_report(ControlKind kind, const Report& report, const ControlIdentity& identity, Bytes out) {
  return write(kind, report, identity, out);
}
std::size_t write_done(const Done& done, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kDone, done, identity, out);
}
std::size_t write_fragment(const Fragment& fragment, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kFragment, fragment, identity, out);
}
std::size_t write_answer(const Answer& answer, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kAnswer, answer, identity, out);
}
std::size_t write_decision(const Decision& decision, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kDecision, decision, identity, out);
}
std::size_t write_announcement(const Announcement& announcement, const ControlIdentity& identity, Bytes out) {
  return write(ControlKind::kAnnouncement, announcement, identity, out);
}

// A sliding window of 64 numbers, as in IPsec (RFC 4303, 3.4.3).
bool ReplayWindow::take(std::uint64_t number) {
  if (number > top_) {
    const std::uint64_t by = number - top_;
    seen_ = by < 64 ? seen_ << by | 1 : 1;
    top_ = number;
    return true;
  }
  const std::uint64_t back = top_ - number;
  if (back >= 64 || (seen_ >> back & 1) != 0) return false;
  seen_ |= std::uint64_t{1} << back;
  return true;
}

// Parses a control message. Every field is checked for its range before a value is used, and the message must end
// after its last field.
Result<Control> read_control(ByteView frame, const ControlIdentity& identity, Rank peer, ReplayWindow& used) {
  const bool tagged = identity.tags != nullptr;
  const Result<ParsedFrame> parsed =
      tagged ? parse_frame(frame, identity.tags->control(), Cover::kFrame) : parse_frame(frame);
  if (!parsed.ok())
    return Status(parsed.status().code(), parsed.status().what(), tagged ? Status::kNoPeer : peer);
  if (tagged && (parsed->header.source != peer || (parsed->number & Tags::kControlNumber) == 0 ||
                 !used.take(parsed->number & ~Tags::kControlNumber)))
    return Status(Code::kCorrupt, fmt::format("not a new control message of rank {}", peer));
  Reader r(parsed->payload, identity.world);
  Control c;
  c.kind = static_cast<ControlKind>(parsed->header.phase);
  r.check(parsed->header.tensor == kControlTensor && parsed->header.source == peer);
  switch (c.kind) {
    case ControlKind::kCard:
      fields(r, c.card);
      break;
    case ControlKind::kFarewell:  // the code is a failure, or kCancelled for a departure
      fields(r, c.farewell);
      r.check(c.farewell.code != Code::kOk);
      break;
    case ControlKind::kEvidence:
      fields(r, c.evidence);
      break;
    case ControlKind::kEcho:
      fields(r, c.echo);
      r.check(c.echo.of >= 0 && c.echo.reported == (c.echo.failure_report.code != Code::kOk));
      break;
    case ControlKind::kAsk:
    case ControlKind::kHere:
      fields(r, c.report);
      break;
    case ControlKind::kDone:
      fields(r, c.done);
      break;
    case ControlKind::kFragment: {
      fields(r, c.fragment);
      const std::uint32_t first = c.fragment.first, whole = c.fragment.whole;
      r.check(whole <= kMaxChoicesBytes && first < whole &&
              c.fragment.piece.size() == std::min<std::size_t>(whole - first, kMaxFragment));
      break;
    }
    case ControlKind::kAnswer:
      fields(r, c.answer);
      break;
    case ControlKind::kDecision:
      fields(r, c.decision);
      r.check((c.decision.after > 0) == (c.decision.code == Code::kOk));
      break;
    case ControlKind::kAnnouncement: {
      const Announcement& a = c.announcement;
      fields(r, c.announcement);
      r.check(a.place != kNoPlace && !(a.is_end && (a.tensors | a.values | a.layout) != 0));
      break;
    }
    default:
      r.check(false);
  }
  if (!r.valid())
    return Status(Code::kCorrupt, fmt::format("rank {} sent an invalid control message", peer), peer);
  return c;
}

}  // namespace tithe::engine
