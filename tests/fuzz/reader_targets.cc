// SPDX-License-Identifier: Apache-2.0
// Frames, spec strings, control frames and states. What a checksum protects is also tried with the checksum put right,
// so that the search gets past it.
#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "base/bytes.h"
#include "engine/carry_store.h"
#include "engine/control.h"
#include "fuzz/targets.h"
#include "tithe/frame.h"
#include "tithe/spec.h"

namespace tithe::fuzz {
namespace {

Input copy_of(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// Length and checksum as they should be.
Input with_right_frame(ByteView bytes) {
  Input frame = copy_of(bytes);
  if (frame.size() < kFrameHeaderBytes) return frame;
  wire::put(&frame[40], std::uint64_t{frame.size() - kFrameHeaderBytes});
  Input covered(frame.begin(), frame.begin() + 56);
  covered.insert(covered.end(), frame.begin() + kFrameHeaderBytes, frame.end());
  wire::put(&frame[56], static_cast<std::uint64_t>(XXH3_64bits(covered.data(), covered.size())));
  return frame;
}

void read_frame(const Input& bytes) {
  Result<ParsedFrame> parsed = parse_frame(bytes);
  if (!parsed.ok()) {
    const Code code = parsed.status().code();
    if (code != Code::kCorrupt && code != Code::kMismatch)
      fail(fmt::format("parse_frame says {}", name(code)));
    return;
  }
  const FrameHeader& h = parsed->header;
  if (parsed->payload.size() != bytes.size() - kFrameHeaderBytes || h.payload_bytes != parsed->payload.size())
    fail("parse_frame: payload is not the rest of the frame");
  Input again = bytes;
  if (!seal_frame(h, again).ok() || again != bytes) fail("seal_frame writes another frame than was parsed");
  if (!check_frame(h, h, parsed->payload.size()).ok()) fail("check_frame refuses what is expected");
  std::vector<ByteView> parts(kMaxParts);
  if (const Status s = split_parts(*parsed, parts); s.ok()) {
    const std::uint8_t* end = bytes.data() + bytes.size();
    std::size_t total = h.flags == kFlagConcat ? 8 * std::size_t{h.parts} : 0;
    for (std::size_t k = 0; k < h.parts; ++k) {
      if (!parts[k].empty() &&
          (parts[k].data() < parsed->payload.data() || parts[k].data() + parts[k].size() > end))
        fail("split_parts: a part outside its frame");
      total += parts[k].size();
    }
    if (total != parsed->payload.size()) fail("split_parts: parts do not make up the payload");
  }
}

Target frame_target() {
  const auto frame = [](std::uint8_t flags, std::uint16_t parts, ByteView payload) {
    Input bytes(kFrameHeaderBytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    const FrameHeader h{.codec = CodecId::fp32,
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

Target control_target() {
  Input card(engine::kControlBytes);
  card.resize(engine::write_card({.world = 4, .tensors = 2, .codec = "topk", .strategy = "ring"}, 1, card));
  Input farewell(engine::kControlBytes);
  farewell.resize(engine::write_farewell({.code = Code::kPeerLost, .blamed = 2, .round = 7, .what = "gone"},
                                         1, farewell));
  Input evidence(engine::kControlBytes), ask(engine::kControlBytes), done(engine::kControlBytes);
  evidence.resize(engine::write_evidence(
      {.finding = engine::Finding::kSilent, .witness = 1, .unheard = {2, 3}}, 1, evidence));
  ask.resize(engine::write_report(engine::ControlKind::kAsk, {.number = 3, .received = 5}, 1, ask));
  done.resize(engine::write_done(7, 1, done));
  const auto read = [](const Input& bytes) {
    Result<engine::Control> control = engine::read_control(bytes);
    if (!control.ok()) return;
    Input again(engine::kControlBytes + bytes.size());
    const auto source = static_cast<Rank>(wire::get<std::uint16_t>(&bytes[28]));
    using engine::ControlKind;
    std::size_t size = 0;
    switch (control->kind) {
      case ControlKind::kCard:
        size = engine::write_card(control->card, source, again);
        break;
      case ControlKind::kFarewell:
        size = engine::write_farewell(control->farewell, source, again);
        break;
      case ControlKind::kEvidence:
        size = engine::write_evidence(control->evidence, source, again);
        break;
      case ControlKind::kAsk:
      case ControlKind::kHere:
        size = engine::write_report(control->kind, control->report, source, again);
        break;
      case ControlKind::kDone:
        size = engine::write_done(control->ended, source, again);
    }
    again.resize(size);
    if (again.size() != bytes.size()) fail("a control frame is written with another length than it was read");
  };
  return {"control",
          [read](ByteView bytes) {
            read(copy_of(bytes));
            read(with_right_frame(bytes));
          },
          {card, farewell, evidence, ask, done}};
}

Target state_target() {
  engine::CarryStore store;
  store.home("weight").n = 3;
  store.home("weight").residual = {1, -2, 3};
  store.home("bias").n = 2;
  store.home("bias").velocity = {0.5F, 0.25F};
  store.home("bias").residual = {4, 5};
  store.home("bias").memory = {0, 1};
  const engine::SavedHead saved{
      .rank = 1, .world = 4, .round = 9, .codec = "topk", .schedule = {}, .told = {}};
  const Input seed = engine::save(saved, store);
  const auto read = [](const Input& bytes) {
    engine::SavedHead head;
    std::map<std::string, engine::Home, std::less<>> homes;
    if (!engine::load(bytes, head, homes).ok()) return;
    // What was read is written as it was, but for arrays of zeros, which shrink to nothing.
    engine::CarryStore again;
    again.all() = homes;
    const Input written = engine::save(head, again);
    std::map<std::string, engine::Home, std::less<>> twice;
    if (written.size() > bytes.size() || !engine::load(written, head, twice).ok() ||
        twice.size() != homes.size())
      fail("a state that was read cannot be written and read again");
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
  targets.push_back(control_target());
  targets.push_back(state_target());
}

}  // namespace tithe::fuzz
