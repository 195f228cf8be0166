// SPDX-License-Identifier: Apache-2.0
// Frames, spec strings, choices, control frames, rendezvous, peer infos and states. Inputs under a checksum or a tag
// are also tried with it put right, so that the search gets past it.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"
#include "engine/peers/control.h"
#include "engine/session/saved_state.h"
#include "frame/pieces.h"
#include "frame/tagger.h"
#include "fuzz/targets.h"
#include "tithe/choices.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"
#include "transport/peer_info.h"
#include "transport/rendezvous/handshake.h"

namespace tithe::fuzz {
namespace {

Input copy_of(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// Corrects length and checksum.
Input with_right_frame(ByteView bytes) {
  Input frame = copy_of(bytes);
  if (frame.size() < kFrameHeaderBytes) return frame;
  wire::put(&frame[40], std::uint64_t{frame.size() - kFrameHeaderBytes});
  Input covered(frame.begin(), frame.begin() + 56);
  if ((frame[27] & 32) == 0)  // the checksum covers the header alone
    covered.insert(covered.end(), frame.begin() + kFrameHeaderBytes, frame.end());
  wire::put(&frame[56], static_cast<std::uint64_t>(XXH3_64bits(covered.data(), covered.size())));
  return frame;
}

void read_frame(const Input& bytes) {
  Result<ParsedFrame> parsed = parse_frame(bytes);
  if (Result<ParsedFrame> header_only = parse_frame(bytes, Reading{.checksum = Cover::kHeader});
      header_only.ok()) {
    if (parsed.ok()) fail("parse_frame accepts a frame under both covers of the checksum");
    parsed = std::move(header_only);
  }
  if (!parsed.ok()) {
    const Code code = parsed.status().code();
    if (code != Code::kCorrupt && code != Code::kMismatch)
      fail(fmt::format("parse_frame fails with {}", name(code)));
    return;
  }
  const FrameHeader& h = parsed->header;
  if (parsed->payload.size() != bytes.size() - kFrameHeaderBytes || h.payload_bytes != parsed->payload.size())
    fail("parse_frame: payload is not the rest of the frame");
  Input again = bytes;
  if (!seal_frame(h, again).ok() || again != bytes) fail("seal_frame does not reproduce the parsed frame");
  if (!check_frame(h, h, parsed->payload.size()).ok()) fail("check_frame refuses the expected header");
  std::vector<ByteView> parts(kMaxParts);
  if (const Status s = split_parts(*parsed, parts); s.ok()) {
    const std::uint8_t* end = bytes.data() + bytes.size();
    std::size_t total = h.flags == kFlagConcat ? 8 * std::size_t{h.parts} : 0;
    for (std::size_t k = 0; k < h.parts; ++k) {
      if (!parts[k].empty() &&
          (parts[k].data() < parsed->payload.data() || parts[k].data() + parts[k].size() > end))
        fail("split_parts: a part is outside its frame");
      total += parts[k].size();
    }
    if (total != parsed->payload.size()) fail("split_parts: parts do not make up the payload");
  }
}

Target frame_target() {
  const auto frame = [](std::uint8_t flags, std::uint16_t parts, ByteView payload) {
    Input bytes(kFrameHeaderBytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    const FrameHeader h{.codec = CodecId{1},
                        .run = 1,
                        .flags = flags,
                        .parts = parts,
                        .values = 3,
                        .payload_bytes = payload.size()};
    if (const Status s = seal_frame(h, bytes); !s.ok()) fail(s.what());
    return bytes;
  };
  Input concat(8 * 3 + 12);
  for (std::size_t k = 0; k < 3; ++k) wire::put(&concat[8 * k], std::uint64_t{4});
  return {"frame",
          [](ByteView bytes) {
            read_frame(copy_of(bytes));
            read_frame(with_right_frame(bytes));
          },
          {frame(0, 1, Input(12)), frame(kFlagConcat, 3, concat), frame(kFlagNonFinite, 1, {}),
           frame(kFlagEmpty, 1, {})}};
}

Target spec_target() {
  const auto text = [](std::string_view s) { return Input(s.begin(), s.end()); };
  return {"spec",
          [](ByteView bytes) {
            const std::string_view s(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            Result<Spec> spec = parse_spec(s);
            if (!spec.ok()) {
              if (spec.status().code() != Code::kInvalid)
                fail(fmt::format("parse_spec says {}", name(spec.status().code())));
              return;
            }
            const std::string shortest = to_string(*spec);
            Result<Spec> again = parse_spec(shortest);
            if (!again.ok()) fail(fmt::format("'{}' does not parse: {}", shortest, again.status().what()));
            if (!(*again == *spec)) fail(fmt::format("'{}' is another spec", shortest));
            if (to_string(*again) != shortest) fail(fmt::format("'{}' prints otherwise", shortest));
          },
          {text("fp32"), text("topk:ratio=0.01"),
           text("dgc:ratio=0.01,feedback=momentum,mu=0.9,mask=off,nesterov=on,clip=1e3"),
           text("dragonn:slots=4,sample=0.5,feedback=none"), text("onebit:feedback=default")}};
}

Target choices_target() {
  const auto text = [](std::string_view s) { return Input(s.begin(), s.end()); };
  return {"choices",
          [](ByteView bytes) {
            const auto rules = parse_rules({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
            if (!rules.ok()) {
              if (rules.status().code() != Code::kInvalid ||
                  printable(rules.status().what(), 4000) != rules.status().what())
                fail("refused rules: the code is not kInvalid, or the text is not printable");
              return;
            }
            const auto again = parse_rules(to_json(*rules));
            if (!again.ok() || *again != *rules) fail("parsed rules are not written as the same rules");
            const auto made =
                Choices::make(*rules, {.spec = *parse_spec("fp8"), .strategy = find_strategy("ring")});
            if (!made.ok() && made.status().code() != Code::kInvalid)
              fail("Choices::make fails with another code than kInvalid");
            if (made.ok()) (void)made->choice("layer.weight", 5000);
          },
          {text(R"({"*.bias": "fp32", "> 1M": "dgc:ratio=0.001", "=a*": {"priority": -3, "group": "g"}})"),
           text(R"({"version": 1, "rules": [{"match": "a?c", "size": "> 1K, <= 16KiB", "codec": "topk",
                    "inside": "bf16", "strategy": "auto", "part_values": "2M", "why": "x\u00e9"}]})")}};
}

Input spelled(const engine::Control& control, const engine::ControlIdentity& identity) {
  Input out(engine::kControlBytes);
  const auto write = [&]() -> std::size_t {
    switch (control.kind) {
      case engine::ControlKind::kCard:
        return engine::write_card(control.card, identity, out);
      case engine::ControlKind::kFarewell:
        return engine::write_farewell(control.farewell, identity, out);
      case engine::ControlKind::kEvidence:
        return engine::write_evidence(control.evidence, identity, out);
      case engine::ControlKind::kEcho:
        return engine::write_echo(control.echo, identity, out);
      case engine::ControlKind::kAsk:
      case engine::ControlKind::kHere:
        return engine::write_report(control.kind, control.report, identity, out);
      case engine::ControlKind::kDone:
        return engine::write_done(control.done, identity, out);
      case engine::ControlKind::kFragment:
        return engine::write_fragment(control.fragment, identity, out);
      case engine::ControlKind::kAnswer:
        return engine::write_answer(control.answer, identity, out);
      case engine::ControlKind::kDecision:
        return engine::write_decision(control.decision, identity, out);
      case engine::ControlKind::kAnnouncement:
        return engine::write_announcement(control.announcement, identity, out);
    }
    fail("read_control returns an unknown kind of message");
  };
  out.resize(write());
  return out;
}

// A frame that was read is written and read again as the same: texts are printable by then.
void read_control_frame(const Input& bytes, Tags* tags) {
  engine::ReplayWindow numbers;
  const engine::ControlIdentity reader{.me = 0, .world = 4, .tags = tags};
  Result<engine::Control> control = engine::read_control(bytes, reader, 1, numbers);
  if (!control.ok()) {
    if (control.status().peer() != (tags == nullptr ? 1 : Status::kNoPeer) &&
        control.status().code() != Code::kCorrupt)
      fail("read_control names another rank than the sender");
    return;
  }
  const engine::Farewell& f = control->farewell;
  if (control->kind == engine::ControlKind::kFarewell &&
      (f.blamed < -1 || f.blamed >= 4 || f.code == Code::kOk || f.code > Code::kCancelled))
    fail("read_control accepts a farewell that no rank sends");
  if (printable(f.what, 400) != f.what || printable(control->card.codec, 400) != control->card.codec)
    fail("read_control returns a text that is not printable");
  engine::ReplayWindow fresh;
  const Result<engine::Control> twice =
      engine::read_control(spelled(*control, {.me = 1, .world = 4, .tags = tags}), reader, 1, fresh);
  const engine::ControlIdentity plain{.me = 1, .world = 4};
  if (!twice.ok() || spelled(*twice, plain) != spelled(*control, plain))
    fail("a control message is not reproduced by its writer");
}

Target control_target() {
  const engine::ControlIdentity writer{.me = 1, .world = 4};
  Input card(engine::kControlBytes);
  card.resize(
      engine::write_card({.world = 4, .tensors = 2, .codec = "topk", .strategy = "ring"}, writer, card));
  Input farewell(engine::kControlBytes);
  farewell.resize(engine::write_farewell({.code = Code::kPeerLost, .blamed = 2, .round = 7, .what = "gone"},
                                         writer, farewell));
  return {"control",
          [](ByteView bytes) {
            read_control_frame(copy_of(bytes), nullptr);
            read_control_frame(with_right_frame(bytes), nullptr);
          },
          {card, farewell,
           spelled({.kind = engine::ControlKind::kEvidence,
                    .evidence = {.finding = engine::Finding::kSilent, .witness = 1, .silent_peers = {2, 3}}},
                   writer),
           spelled({.kind = engine::ControlKind::kEcho,
                    .echo = {.of = 3,
                             .reported = true,
                             .failure_report = {.finding = engine::Finding::kSilent,
                                                .code = Code::kTimeout,
                                                .witness = 3,
                                                .blamed = 2,
                                                .round = 4,
                                                .silent_peers = {2},
                                                .what = "silent"}}},
                   writer),
           spelled({.kind = engine::ControlKind::kHere,
                    .report = {.number = 3, .round = 9, .waits_for = 2, .received = 100, .sent = 200}},
                   writer),
           spelled({.kind = engine::ControlKind::kDone, .done = {.ended = 10, .begun = 10, .away_ns = 7}},
                   writer),
           spelled({.kind = engine::ControlKind::kFragment,
                    .fragment = {.number = 1, .first = 0, .whole = 2, .piece = "{}"}},
                   writer),
           spelled({.kind = engine::ControlKind::kAnswer,
                    .answer = {.number = 1, .hash = 5, .code = Code::kIo, .why = "no memory"}},
                   writer),
           spelled({.kind = engine::ControlKind::kDecision, .decision = {.number = 1, .after = 7}}, writer),
           spelled({.kind = engine::ControlKind::kAnnouncement,
                    .announcement = {.ended = 3, .place = 1, .tensors = 2, .values = 9, .layout = 5}},
                   writer)}};
}

// Tagged frames: unchanged, which must be rejected if a bit differs, and with a corrected tag.
Target tagged_target() {
  static const Secret kSession{1};
  static const Secret kKey = derive(kSession, "tithe frames", {});  // as Tags makes it
  const auto sealed = [](FrameHeader h, ByteView payload, Cover cover) {
    Tagger tagger(kKey);
    Input bytes(kFrameHeaderBytes + payload.size() + kFrameTrailerBytes);
    std::copy(payload.begin(), payload.end(), bytes.begin() + kFrameHeaderBytes);
    h.payload_bytes = payload.size();
    if (const Status s = seal_frame(h, bytes, tagger, 5, cover); !s.ok()) fail(s.what());
    return bytes;
  };
  const FrameHeader plain{.codec = CodecId{1}, .source = 1, .values = 3};
  Tags tags(kSession, 1);
  Input farewell(engine::kControlBytes);
  farewell.resize(engine::write_farewell({.code = Code::kTimeout, .blamed = 2, .round = 7, .what = "still"},
                                         {.me = 1, .world = 4, .tags = &tags}, farewell));
  const std::vector<Input> seeds{sealed(plain, Input(12), Cover::kHeader),
                                 sealed(plain, Input(12), Cover::kFrame), farewell};
  return {
      "tagged",
      [seeds](ByteView bytes) {
        Tagger tagger(kKey);
        Input frame = copy_of(bytes);
        if (parse_frame(frame, tagger, Cover::kHeader).ok() &&
            std::find(seeds.begin(), seeds.end(), frame) == seeds.end())
          fail("a frame without a valid tag is accepted");
        Tags mine(kSession, 1);
        read_control_frame(frame, &mine);
        if (frame.size() < kFrameHeaderBytes + kFrameTrailerBytes) return;
        // Sealed like a rank of the job would seal these bytes.
        Input body(frame.begin(), frame.end() - kFrameTrailerBytes);
        body[27] = static_cast<std::uint8_t>((body[27] & ~24U) | 16U);
        body = with_right_frame(body);
        const std::uint64_t number = Tags::kControlNumber | 9;
        const Tag tag = tagger.tag(wire::get<std::uint16_t>(&body[28]), number, {body});
        const std::size_t end = body.size();
        body.resize(end + kFrameTrailerBytes);
        wire::put(&body[end], number);
        std::copy(tag.begin(), tag.end(), body.end() - kFrameTagBytes);
        const Result<ParsedFrame> parsed = parse_frame(body, tagger, Cover::kFrame);
        if (parsed.ok()) {
          Input again = body;
          if (!seal_frame(parsed->header, again, tagger, parsed->number, Cover::kFrame).ok() || again != body)
            fail("seal_frame does not reproduce the parsed tagged frame");
        }
        read_control_frame(body, &mine);
      },
      seeds};
}

// The messages between rank 0 and a connecting rank: unchanged, and sealed like by a rank with the token.
Target meeting_target() {
  using namespace rendezvous;
  const Handshake shake{.token = Token(32, 3), .client = {1}, .host = {2}};
  const std::vector<Blob> items{Blob(3, 1), Blob(5, 2)};
  const std::string text = "rank 1 differs";
  const Blob why(text.begin(), text.end());
  const auto behind = [](const Blob& message, std::size_t head) {
    return Input(message.begin() + static_cast<std::ptrdiff_t>(head), message.end());
  };
  const Blob claim = write_claim(shake, 2, 1, Blob(7, 9));
  const Blob answer = write_answer(shake, {}, items);
  const Blob refusal = write_answer(shake, {Code::kMismatch, text, 1}, std::span(&why, 1));
  const auto head = [](const Blob& message, std::size_t n) {
    return Input(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(n));
  };
  return {"meeting",
          [shake](ByteView bytes) {
            static_cast<void>(read_request(bytes));
            Handshake client = shake;
            static_cast<void>(read_challenge(bytes, client));
            if (const auto c = read_claim(bytes, shake); c && (c->world != 2 || c->rank != 1))
              fail("a claim made without the token is accepted");
            if (const auto n = read_answer(bytes, shake, 2); n && *n > 2 * (kMaxBlobBytes + 4) + 64)
              fail("the stated size of an answer exceeds the limit");
            if (const auto blob = open_claim(bytes, shake); blob && *blob != Blob(7, 9))
              fail("a claim opens that differs from the sealed one");
            static_cast<void>(open_answer(bytes, shake, 2));
            // The plain bytes of an answer, sealed like rank 0 would.
            const auto opened = open_answer(seal_for_client(shake, bytes), shake, 2);
            if (opened.ok() && opened->size() != 2) fail("an answer for another world size is accepted");
            if (!opened.ok() && (opened.status().peer() < -1 || opened.status().peer() >= 2 ||
                                 printable(opened.status().what(), 2000) != opened.status().what()))
              fail("an answer's error has an invalid rank or an unprintable text");
          },
          {write_request(shake.client), write_challenge(shake), head(claim, kClaimBytes),
           behind(claim, kClaimBytes), head(answer, kAnswerBytes), behind(answer, kAnswerBytes),
           behind(refusal, kAnswerBytes)}};
}

Target hello_target() {
  const Token token(32, 4);
  static constexpr TransportVersion kTransportVersion{.magic = 0x54534554, .name = "test"};
  const Input good =
      write_peer_info({.rank = 1, .world = 2, .error = {}, .address = {1, 2, 3}}, token, kTransportVersion);
  const Input error = write_peer_info(
      {.rank = 1, .world = 2, .error = {Code::kIo, "no device"}, .address = {}}, token, kTransportVersion);
  return {"hello",
          [token, good, error](ByteView bytes) {
            Input blob = copy_of(bytes);
            const auto heard = read_peer_info(blob, 1, 2, token, kTransportVersion);
            if (heard.ok() && blob != good) fail("an invalid peer info is accepted");
            constexpr std::size_t kEnd = 8 + kSecretBytes;
            if (blob.size() < kEnd) return;
            const std::size_t body = blob.size() - kEnd;
            wire::put(&blob[body], static_cast<std::uint64_t>(XXH3_64bits(blob.data(), body)));
            const Secret tag = derive(token, "tithe hello", {ByteView(blob).first(body + 8)});
            std::copy(tag.begin(), tag.end(), blob.end() - kSecretBytes);
            const auto right = read_peer_info(blob, 1, 2, token, kTransportVersion);
            if (right.ok() && right->address.empty()) fail("a peer info has an empty address");
            if (!right.ok() && (right.status().peer() != 1 ||
                                printable(right.status().what(), 4000) != right.status().what()))
              fail("a refusal does not name rank 1, or its text is not printable");
          },
          {good, error}};
}

Target state_target() {
  feedback::ResidualStore store;
  store.of("weight").n = 3;
  store.of("weight").loose_residual = {1, -2, 3};
  store.of("bias").n = 2;
  store.of("bias").loose_velocity = {0.5F, 0.25F};
  store.of("bias").loose_residual = {4, 5};
  store.of("bias").loose_memory = {0, 1};
  const engine::SavedHead saved{
      .rank = 1, .world = 4, .round = 9, .codec = "topk", .schedule = {}, .schedule_state = {}};
  const Input seed = engine::save(saved, store);
  const auto read = [](const Input& bytes) {
    engine::SavedHead head;
    feedback::ResidualStore::Map kept;
    if (!engine::load(bytes, head, kept).ok()) return;
    // A parsed state is written unchanged, except that arrays of zeros become empty.
    feedback::ResidualStore again;
    again.all() = kept;
    const Input written = engine::save(head, again);
    feedback::ResidualStore::Map twice;
    if (written.size() > bytes.size() || !engine::load(written, head, twice).ok() ||
        twice.size() != kept.size())
      fail("a state does not survive write and read");
  };
  return {"state",
          [read](ByteView bytes) {
            Input state = copy_of(bytes);
            read(state);
            if (state.size() < 8) return;
            const std::size_t body = state.size() - 8;
            wire::put(&state[body], static_cast<std::uint64_t>(XXH3_64bits(state.data(), body)));
            read(state);
          },
          {seed, engine::save({}, {})}};
}

}  // namespace

void add_reader_targets(std::vector<Target>& targets) {
  targets.push_back(frame_target());
  targets.push_back(spec_target());
  targets.push_back(choices_target());
  targets.push_back(control_target());
  targets.push_back(tagged_target());
  targets.push_back(meeting_target());
  targets.push_back(hello_target());
  targets.push_back(state_target());
}

}  // namespace tithe::fuzz
