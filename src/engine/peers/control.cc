// SPDX-License-Identifier: Apache-2.0
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

// Fixed fields in order; then each text as a u16 length and bytes.
class Writer {
 public:
  explicit Writer(Bytes out) : out_(out) {}
  template <typename T>
  void number(T v) {
    wire::put(&out_[at_], v);
    at_ += sizeof v;
  }
  void text(std::string_view s, std::size_t most = kMostControlText) { raw(printable(s, most)); }
  void ranks(const std::vector<Rank>& list) {
    const std::size_t n = std::min(list.size(), kMostUnheard);
    number(static_cast<std::uint16_t>(n));
    for (std::size_t k = 0; k < n; ++k) number(static_cast<std::uint16_t>(list[k]));
  }
  void raw(std::string_view s) {
    number(static_cast<std::uint16_t>(s.size()));
    if (!s.empty()) std::memcpy(&out_[at_], s.data(), s.size());
    at_ += s.size();
  }
  std::size_t bytes() const { return at_; }

 private:
  Bytes out_;
  std::size_t at_ = kFrameHeaderBytes;
};

// Reads fields in order. If a field does not fit, whole() returns false from then on.
class Reader {
 public:
  explicit Reader(ByteView in) : in_(in) {}
  template <typename T>
  T number() {
    T v{};
    if (in_.size() < sizeof v) {
      whole_ = false;
      return v;
    }
    v = wire::get<T>(in_.data());
    in_ = in_.subspan(sizeof v);
    return v;
  }
  std::string raw(std::size_t most) {
    const auto n = number<std::uint16_t>();
    if (n > most || in_.size() < n) {
      whole_ = false;
      return {};
    }
    const std::string s(in_.begin(), in_.begin() + n);
    in_ = in_.subspan(n);
    return s;
  }
  std::string text(std::size_t most = kMostControlText) { return printable(raw(most), most); }
  bool whole() const { return whole_ && in_.empty(); }

 private:
  ByteView in_;
  bool whole_ = true;
};

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

bool is_code(std::uint8_t code) { return code <= static_cast<std::uint8_t>(Code::kCancelled); }

// The code of a farewell is a failure, or kCancelled for a departure.
bool can_be_farewell(std::uint8_t code) { return is_code(code) && static_cast<Code>(code) != Code::kOk; }

}  // namespace

std::size_t write_card(const Card& card, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(card.number);
  w.number(card.world);
  for (const std::uint64_t v : {card.run, card.seed, card.tensors, card.values, card.layout, card.plan,
                                card.round, card.ended, card.job, card.proposed_job})
    w.number(v);
  w.number(card.place);
  w.number(card.average);
  w.text(card.codec);
  w.text(card.strategy);
  return seal(ControlKind::kCard, identity, w.bytes(), out);
}

std::size_t write_farewell(const Farewell& farewell, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(static_cast<std::uint8_t>(farewell.code));
  w.number(static_cast<std::int32_t>(farewell.blamed));
  w.number(farewell.round);
  w.number(static_cast<std::uint8_t>(farewell.finite));
  w.text(farewell.what);
  return seal(ControlKind::kFarewell, identity, w.bytes(), out);
}

std::size_t write_evidence(const Evidence& evidence, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(static_cast<std::uint8_t>(evidence.finding));
  w.number(static_cast<std::int32_t>(evidence.witness));
  w.ranks(evidence.unheard);
  return seal(ControlKind::kEvidence, identity, w.bytes(), out);
}

std::size_t write_echo(const Echo& echo, const ControlIdentity& identity, Bytes out) {
  const FailureReport& t = echo.failure_report;
  Writer w(out);
  w.number(static_cast<std::int32_t>(echo.of));
  w.number(static_cast<std::uint8_t>(echo.spoke));
  w.number(static_cast<std::uint8_t>(t.finding));
  w.number(static_cast<std::uint8_t>(t.code));
  w.number(static_cast<std::int32_t>(t.witness));
  w.number(static_cast<std::int32_t>(t.blamed));
  w.number(t.round);
  w.number(static_cast<std::uint8_t>(t.finite));
  w.ranks(t.unheard);
  w.text(t.what, kMostEchoText);
  return seal(ControlKind::kEcho, identity, w.bytes(), out);
}

std::size_t write_report(ControlKind kind, const Report& report, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(report.number);
  w.number(report.round);
  w.number(static_cast<std::uint8_t>(report.state));
  w.number(static_cast<std::int32_t>(report.waits_for));
  w.number(report.received);
  w.number(report.sent);
  w.number(report.told);
  return seal(kind, identity, w.bytes(), out);
}

std::size_t write_done(const Done& done, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(done.ended);
  w.number(done.begun);
  w.number(done.away_ns);
  w.number(static_cast<std::uint8_t>(done.finite));
  return seal(ControlKind::kDone, identity, w.bytes(), out);
}

std::size_t write_fragment(const Fragment& fragment, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(fragment.number);
  w.number(fragment.first);
  w.number(fragment.whole);
  w.raw(fragment.piece);
  return seal(ControlKind::kFragment, identity, w.bytes(), out);
}

std::size_t write_answer(const Answer& answer, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(answer.number);
  w.number(answer.hash);
  w.number(static_cast<std::uint8_t>(answer.code));
  w.text(answer.why);
  return seal(ControlKind::kAnswer, identity, w.bytes(), out);
}

std::size_t write_decision(const Decision& decision, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  w.number(decision.number);
  w.number(decision.after);
  w.number(static_cast<std::uint8_t>(decision.code));
  w.number(static_cast<std::int32_t>(decision.blamed));
  w.text(decision.why);
  return seal(ControlKind::kDecision, identity, w.bytes(), out);
}

std::size_t write_announcement(const Announcement& a, const ControlIdentity& identity, Bytes out) {
  Writer w(out);
  for (const std::uint64_t v : {a.ended, a.round, a.job, a.tensors, a.values, a.layout}) w.number(v);
  w.number(a.place);
  w.number(static_cast<std::uint8_t>(a.is_end));
  return seal(ControlKind::kAnnouncement, identity, w.bytes(), out);
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
  Reader r(parsed->payload);
  Control c;
  c.kind = static_cast<ControlKind>(parsed->header.phase);
  bool known = parsed->header.tensor == kControlTensor && parsed->header.source == peer;
  const auto in_world = [&](Rank rank) { return rank >= Status::kNoPeer && rank < identity.world; };
  const auto flag = [&] {
    const auto n = r.number<std::uint8_t>();
    known = known && n <= 1;
    return n == 1;
  };
  const auto ranks = [&](std::vector<Rank>& list) {
    const auto n = r.number<std::uint16_t>();
    bool fits = n <= kMostUnheard;
    for (std::uint16_t k = 0; fits && k < n; ++k) {
      list.push_back(r.number<std::uint16_t>());
      fits = in_world(list.back());
    }
    return fits;
  };
  switch (c.kind) {
    case ControlKind::kCard:
      c.card.number = r.number<std::uint32_t>();
      c.card.world = r.number<std::uint32_t>();
      for (std::uint64_t* v : {&c.card.run, &c.card.seed, &c.card.tensors, &c.card.values, &c.card.layout,
                               &c.card.plan, &c.card.round, &c.card.ended, &c.card.job, &c.card.proposed_job})
        *v = r.number<std::uint64_t>();
      c.card.place = r.number<std::uint32_t>();
      c.card.average = r.number<std::uint8_t>();
      c.card.codec = r.text();
      c.card.strategy = r.text();
      break;
    case ControlKind::kFarewell: {
      const auto code = r.number<std::uint8_t>();
      c.farewell.code = static_cast<Code>(code);
      c.farewell.blamed = r.number<std::int32_t>();
      known = known && can_be_farewell(code) && in_world(c.farewell.blamed);
      c.farewell.round = r.number<std::uint32_t>();
      c.farewell.finite = flag();
      c.farewell.what = r.text();
      break;
    }
    case ControlKind::kEvidence: {
      c.evidence.finding = static_cast<Finding>(r.number<std::uint8_t>());
      c.evidence.witness = r.number<std::int32_t>();
      known = known && in_world(c.evidence.witness);
      known = known && c.evidence.finding < Finding::kCount && ranks(c.evidence.unheard);
      break;
    }
    case ControlKind::kEcho: {
      FailureReport& t = c.echo.failure_report;
      c.echo.of = r.number<std::int32_t>();
      c.echo.spoke = r.number<std::uint8_t>() != 0;
      t.finding = static_cast<Finding>(r.number<std::uint8_t>());
      const auto code = r.number<std::uint8_t>();
      t.code = static_cast<Code>(code);
      t.witness = r.number<std::int32_t>();
      t.blamed = r.number<std::int32_t>();
      t.round = r.number<std::uint32_t>();
      t.finite = flag();
      known = known && c.echo.of >= 0 && c.echo.of < identity.world && t.finding < Finding::kCount &&
              (is_code(code) && c.echo.spoke == (t.code != Code::kOk)) && in_world(t.witness) &&
              in_world(t.blamed) && ranks(t.unheard);
      t.what = r.text(kMostEchoText);
      break;
    }
    case ControlKind::kAsk:
    case ControlKind::kHere: {
      c.report.number = r.number<std::uint32_t>();
      c.report.round = r.number<std::uint32_t>();
      c.report.state = static_cast<Report::State>(r.number<std::uint8_t>());
      known = known && c.report.state <= Report::State::kWaits;
      c.report.waits_for = r.number<std::int32_t>();
      known = known && in_world(c.report.waits_for);
      c.report.received = r.number<std::uint64_t>();
      c.report.sent = r.number<std::uint64_t>();
      c.report.told = r.number<std::uint32_t>();
      break;
    }
    case ControlKind::kDone:
      c.done.ended = r.number<std::uint64_t>();
      c.done.begun = r.number<std::uint64_t>();
      c.done.away_ns = r.number<std::uint64_t>();
      c.done.finite = flag();
      break;
    case ControlKind::kFragment:
      c.fragment.number = r.number<std::uint32_t>();
      c.fragment.first = r.number<std::uint32_t>();
      c.fragment.whole = r.number<std::uint32_t>();
      c.fragment.piece = r.raw(kMostFragment);
      known = known && c.fragment.whole <= kMaxChoicesBytes && c.fragment.first < c.fragment.whole &&
              c.fragment.piece.size() ==
                  std::min<std::size_t>(c.fragment.whole - c.fragment.first, kMostFragment);
      break;
    case ControlKind::kAnswer: {
      c.answer.number = r.number<std::uint32_t>();
      c.answer.hash = r.number<std::uint64_t>();
      const auto code = r.number<std::uint8_t>();
      c.answer.code = static_cast<Code>(code);
      known = known && is_code(code);
      c.answer.why = r.text();
      break;
    }
    case ControlKind::kDecision: {
      c.decision.number = r.number<std::uint32_t>();
      c.decision.after = r.number<std::uint64_t>();
      const auto code = r.number<std::uint8_t>();
      c.decision.code = static_cast<Code>(code);
      c.decision.blamed = r.number<std::int32_t>();
      known = known && is_code(code) && in_world(c.decision.blamed) &&
              (c.decision.after > 0) == (c.decision.code == Code::kOk);
      c.decision.why = r.text();
      break;
    }
    case ControlKind::kAnnouncement: {
      Announcement& a = c.announcement;
      for (std::uint64_t* v : {&a.ended, &a.round, &a.job, &a.tensors, &a.values, &a.layout})
        *v = r.number<std::uint64_t>();
      a.place = r.number<std::uint32_t>();
      a.is_end = r.number<std::uint8_t>() != 0;
      known = known && a.place != kNoPlace && !(a.is_end && (a.tensors | a.values | a.layout) != 0);
      break;
    }
    default:
      known = false;
  }
  if (!known || !r.whole())
    return Status(Code::kCorrupt, fmt::format("rank {} sent an invalid control message", peer), peer);
  return c;
}

}  // namespace tithe::engine
