// SPDX-License-Identifier: Apache-2.0
// Protects the bytes of frames against accidental changes: golden frames are encoded again by every impl, decoded by
// every impl, and damaged in every way that one bit or one missing byte can. TITHE_REWRITE_GOLDEN=1 rewrites them; an
// intended change then shows in the diff.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "base/bytes.h"
#include "engine/peers/control.h"
#include "engine/session/saved_state.h"
#include "frame/pieces.h"
#include "golden/golden_cases.h"
#include "golden/golden_values.h"
#include "tithe/seam/catalogue.h"

namespace tithe::golden {
namespace {

namespace fs = std::filesystem;

bool rewriting() {
  const char* on = std::getenv("TITHE_REWRITE_GOLDEN");
  return on != nullptr && std::string_view(on) == "1";
}

std::vector<std::uint8_t> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path << " is missing; TITHE_REWRITE_GOLDEN=1 makes it";
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A call with the memory that it points to.
struct Ready {
  std::vector<std::uint8_t> scratch;
  std::vector<std::uint8_t> context;  // of codecs of several phases: as the case's first worker makes it
  Call call;
};

std::unique_ptr<Ready> ready(const Case& c, int part) {
  auto r = std::make_unique<Ready>();
  r->call = call_of(c, part);
  r->scratch.resize(c.codec->scratch(r->call.settings, c.n) + 64);
  const std::size_t skip = (64 - reinterpret_cast<std::uintptr_t>(r->scratch.data()) % 64) % 64;
  r->call.scratch = Bytes(r->scratch).subspan(skip);
  const auto grad = stream(0, c.n), residual = stream(1, c.n);
  r->context = phases::context_alone(*c.codec, c.codec->reference(), r->call,
                                     {grad.data(), residual.data(), nullptr, c.n});
  r->call.context = r->context;
  return r;
}

std::vector<std::uint8_t> frame_of(const Case& c, const Impl& impl) {
  const Codec& codec = *c.codec;
  FrameHeader header = header_of(c);
  const std::size_t table = c.parts == 1 ? 0 : 8 * static_cast<std::size_t>(c.parts);
  std::vector<std::uint8_t> frame(kFrameHeaderBytes + table);
  for (int part = 0; part < c.parts; ++part) {
    const auto r = ready(c, part);
    const Call& call = r->call;
    const auto grad = stream(static_cast<std::uint32_t>(2 * part), c.n);
    const auto residual = stream(static_cast<std::uint32_t>(2 * part + 1), c.n);
    std::vector<float> left(c.n);
    const bool feedback = !codec.traits.lossless;
    const EncodeInput input{grad.data(), feedback ? residual.data() : nullptr,
                            feedback ? left.data() : nullptr, c.n};
    std::vector<std::uint8_t> payload(codec.phases.back().bound(call.settings, c.n));
    auto encoded = impl.encode(call, input, payload);
    EXPECT_TRUE(encoded.ok()) << c.name << ' ' << impl.name << ": " << encoded.status().what();
    if (!encoded.ok()) return {};
    EXPECT_TRUE(encoded->finite);
    if (table != 0)
      wire::put(&frame[kFrameHeaderBytes + 8 * static_cast<std::size_t>(part)],
                static_cast<std::uint64_t>(encoded->bytes));
    frame.insert(frame.end(), payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(encoded->bytes));
  }
  header.payload_bytes = frame.size() - kFrameHeaderBytes;
  EXPECT_TRUE(seal_frame(header, frame).ok());
  return frame;
}

std::vector<float> values_of(const Case& c, const Impl& impl, ByteView frame) {
  std::vector<float> out(c.n);
  auto parsed = parse_frame(frame);
  EXPECT_TRUE(parsed.ok()) << c.name << ": " << parsed.status().what();
  if (!parsed.ok()) return {};
  std::vector<ByteView> parts(parsed->header.parts);
  EXPECT_TRUE(split_parts(*parsed, parts).ok());
  const Status s = impl.decode(ready(c, 0)->call, parts, {}, out);
  EXPECT_TRUE(s.ok()) << c.name << ' ' << impl.name << ": " << s.what();
  return out;
}

std::string bytes_as_string(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

template <typename Use>
void for_each_usable(const Codec& codec, Use use) {
  for (const Impl& impl : codec.impls)
    if (impl.usable(this_machine())) use(impl);
}

// The flagged frames: no payload, no codec's business.
std::vector<std::pair<std::string, FrameHeader>> flagged() {
  const Case c{"", find_codec("fp32"), 5, 1};
  FrameHeader non_finite = header_of(c);
  non_finite.flags = kFlagNonFinite;
  FrameHeader empty = header_of(c);
  empty.flags = kFlagEmpty;
  return {{"flag_non_finite", non_finite}, {"flag_empty", empty}};
}

// The engine's messages and states, beside payloads (docs/reference/format_control.md, docs/reference/format_state.md).
std::vector<std::pair<std::string, std::vector<std::uint8_t>>> engine_files() {
  std::vector<std::uint8_t> card(engine::kControlBytes);
  card.resize(engine::write_card({.number = 1,
                                  .world = 4,
                                  .run = 2,
                                  .seed = 3,
                                  .tensors = 5,
                                  .values = 6000,
                                  .layout = 7,
                                  .plan = 8,
                                  .round = 9,
                                  .ended = 4,
                                  .place = 2,
                                  .job = 10,
                                  .proposed_job = 11,
                                  .average = 1,
                                  .codec = "dgc:ratio=0.02",
                                  .strategy = "gather"},
                                 {.me = 2, .world = 4}, card));
  std::vector<std::uint8_t> farewell(engine::kControlBytes);
  farewell.resize(
      engine::write_farewell({.code = Code::kPeerLost, .blamed = 3, .round = 12, .what = "rank 3 is gone"},
                             {.me = 2, .world = 4}, farewell));
  const engine::ControlIdentity me{.me = 2, .world = 4};
  std::vector<std::uint8_t> evidence(engine::kControlBytes), here(evidence), done(evidence), echo(evidence),
      announcement(evidence);
  announcement.resize(engine::write_announcement(
      {.ended = 4, .place = 2, .round = 9, .job = 10, .tensors = 5, .values = 6000, .layout = 7}, me,
      announcement));
  evidence.resize(engine::write_evidence(
      {.finding = engine::Finding::kSilent, .witness = 2, .silent_peers = {1, 3}}, me, evidence));
  here.resize(engine::write_report(engine::ControlKind::kHere,
                                   {.number = 5,
                                    .round = 12,
                                    .state = engine::Report::State::kWaits,
                                    .waits_for = 3,
                                    .received = 70'000,
                                    .sent = 80'000,
                                    .messages_sent = 6},
                                   me, here));
  echo.resize(engine::write_echo({.of = 3,
                                  .reported = true,
                                  .failure_report = {.finding = engine::Finding::kSilent,
                                                     .code = Code::kTimeout,
                                                     .witness = 3,
                                                     .blamed = 0,
                                                     .round = 12,
                                                     .silent_peers = {0, 1},
                                                     .what = "nothing was heard from it"}},
                                 me, echo));
  done.resize(engine::write_done({.ended = 13, .begun = 14, .away_ns = 250'000'000}, me, done));
  feedback::ResidualStore store;
  store.of("layer.bias").n = 2;
  store.of("layer.bias").loose_residual = {0.25F, -3.0F};
  store.of("layer.bias").loose_velocity = {1.5F, 0.0F};
  store.of("layer.weight").n = 3;
  store.of("layer.weight").loose_residual = {1.0F, -2.0F, 1e-30F};
  store.of("layer.weight").loose_memory = {7, 0, 255};
  store.of("layer.weight").loose_memory_kind = 0x1122334455667788;
  store.of("unsent.nothing").n = 4;
  return {
      {"control_card.bin", card},
      {"control_farewell.bin", farewell},
      {"control_evidence.bin", evidence},
      {"control_here.bin", here},
      {"control_done.bin", done},
      {"control_echo.bin", echo},
      {"control_announcement.bin", announcement},
      {"state.state", engine::save({.rank = 2,
                                    .world = 4,
                                    .round = 9,
                                    .job = 0x8877665544332211,
                                    .codec = "dgc:feedback=momentum",
                                    .opened = "dgc",
                                    .decided = "{}",
                                    .link = "1Gb/s",
                                    .schedule = "warmup:400+recover:0.05",
                                    .schedule_state = {.learning_rate = 0.125, .min_loss = 0.75, .steps = 2},
                                    .members = {"north", "east", "south", "west"}},
                                   store)}};
}

TEST(Golden, EngineWritesAndReadsThem) {
  for (const auto& [name, bytes] : engine_files()) {
    if (rewriting()) write(folder() / name, bytes_as_string(bytes));
    EXPECT_EQ(bytes, read(folder() / name)) << name;
  }
  engine::ReplayWindow none;
  const engine::ControlIdentity reader{.me = 0, .world = 4};
  const auto card = engine::read_control(read(folder() / "control_card.bin"), reader, 2, none);
  ASSERT_TRUE(card.ok());
  EXPECT_EQ((*card).card.codec, "dgc:ratio=0.02");
  EXPECT_EQ((*card).card.round, 9U);
  const auto farewell = engine::read_control(read(folder() / "control_farewell.bin"), reader, 2, none);
  ASSERT_TRUE(farewell.ok());
  EXPECT_EQ((*farewell).farewell.blamed, 3);
  const auto evidence = engine::read_control(read(folder() / "control_evidence.bin"), reader, 2, none);
  ASSERT_TRUE(evidence.ok());
  EXPECT_EQ((*evidence).evidence.silent_peers, (std::vector<Rank>{1, 3}));
  const auto here = engine::read_control(read(folder() / "control_here.bin"), reader, 2, none);
  ASSERT_TRUE(here.ok());
  EXPECT_EQ((*here).report.sent, 80'000U);
  const auto done = engine::read_control(read(folder() / "control_done.bin"), reader, 2, none);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ((*done).done, (engine::Done{.ended = 13, .begun = 14, .away_ns = 250'000'000}));
  const auto echo = engine::read_control(read(folder() / "control_echo.bin"), reader, 2, none);
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ((*echo).echo.failure_report.silent_peers, (std::vector<Rank>{0, 1}));
  const auto announcement =
      engine::read_control(read(folder() / "control_announcement.bin"), reader, 2, none);
  ASSERT_TRUE(announcement.ok());
  EXPECT_EQ((*announcement).announcement, engine::entry_of((*card).card));
  const auto state = read(folder() / "state.state");
  engine::SavedHead head;
  feedback::ResidualStore::Map kept;
  ASSERT_TRUE(engine::load(state, head, kept).ok());
  EXPECT_EQ(head.codec, "dgc:feedback=momentum");
  EXPECT_EQ(head.schedule, "warmup:400+recover:0.05");
  EXPECT_EQ(head.schedule_state, (Schedule::State{0.125, 0.75, 2}));
  EXPECT_EQ(head.name(head.rank), "south");
  EXPECT_EQ(head.job, 0x8877665544332211U);
  EXPECT_EQ(kept.at("layer.bias").loose_velocity, (std::vector<float>{1.5F, 0.0F}));
  EXPECT_EQ(kept.at("layer.weight").loose_memory, (std::vector<std::uint8_t>{7, 0, 255}));
  EXPECT_EQ(kept.at("layer.weight").loose_memory_kind, 0x1122334455667788U);
}

TEST(Golden, TruncatedOrFlippedStatesGiveAStatus) {
  auto state = read(folder() / "state.state");
  const auto loads = [](ByteView bytes) {
    engine::SavedHead head;
    feedback::ResidualStore::Map kept;
    return engine::load(bytes, head, kept).ok();
  };
  ASSERT_TRUE(loads(state));
  for (std::size_t cut = 0; cut < state.size(); ++cut) ASSERT_FALSE(loads(ByteView(state).first(cut))) << cut;
  for (std::size_t bit = 0; bit < 8 * state.size(); ++bit) {
    state[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    ASSERT_FALSE(loads(state)) << "bit " << bit;
    state[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
  }
}

TEST(Golden, EncodersWriteThemByteForByte) {
  for (const Case& c : cases()) {
    const fs::path path = folder() / (c.name + ".bin");
    if (rewriting()) write(path, bytes_as_string(frame_of(c, c.codec->reference())));
    const auto want = read(path);
    if (c.codec->phases.size() > 1) {
      const fs::path beside = folder() / (c.name + ".context");
      if (rewriting()) write(beside, bytes_as_string(ready(c, 0)->context));
      EXPECT_EQ(ready(c, 0)->context, read(beside)) << c.name;
    }
    for_each_usable(*c.codec, [&](const Impl& impl) {
      EXPECT_EQ(frame_of(c, impl), want) << c.name << ' ' << impl.name;
    });
  }
  for (const auto& [name, header] : flagged()) {
    std::vector<std::uint8_t> frame(kFrameHeaderBytes);
    ASSERT_TRUE(seal_frame(header, frame).ok());
    if (rewriting()) write(folder() / (name + ".bin"), bytes_as_string(frame));
    EXPECT_EQ(frame, read(folder() / (name + ".bin"))) << name;
  }
}

// The checksum covers the header only: a network card has modified the payload, and only readers that expect this
// accept the frame. It is not among the .bin files, which all readers read.
TEST(Golden, FrameWithoutPayloadChecksum) {
  FrameHeader header = header_of({"", find_codec("fp32"), 3, 1});
  header.checksum = Cover::kHeader;
  header.payload_bytes = 12;
  std::vector<std::uint8_t> frame(kFrameHeaderBytes + 12);
  ASSERT_TRUE(seal_frame(header, frame).ok());
  for (const std::size_t i : {0, 1, 2})
    wire::put(&frame[kFrameHeaderBytes + 4 * i], std::array{0.25F, -0.5F, 3.0F}[i]);
  const fs::path path = folder() / "header_alone.frame";
  if (rewriting()) write(path, bytes_as_string(frame));
  EXPECT_EQ(frame, read(path));
  EXPECT_EQ(parse_frame(frame).status().code(), Code::kMismatch);
  const Result<ParsedFrame> parsed = parse_frame(frame, Reading{.checksum = Cover::kHeader});
  ASSERT_TRUE(parsed.ok()) << parsed.status().what();
  EXPECT_EQ(parsed->header, header);
  EXPECT_EQ(wire::get<float>(&parsed->payload[8]), 3.0F);
}

TEST(Golden, DecodersReadThem) {
  const std::map<std::string, Listed> listed = listed_values();
  const char* everything = std::getenv("TITHE_GOLDEN_VALUES");
  std::string list;
  for (const Case& c : cases()) {
    const auto frame = read(folder() / (c.name + ".bin"));
    const std::vector<float> reference = values_of(c, c.codec->reference(), frame);
    if (everything != nullptr) write(fs::path(everything) / (c.name + ".txt"), text_of(reference));
    const Listed made = listed_as(reference);
    list += c.name + ' ' + std::to_string(made.n) + ' ' + made.sha256 + '\n';
    if (is_sample(c)) {
      const fs::path path = folder() / (c.name + ".txt");
      if (rewriting()) write(path, text_of(reference));
      EXPECT_EQ(text_of(reference), bytes_as_string(read(path))) << c.name;
    }
    const auto found = listed.find(c.name);
    const Listed want = rewriting() ? made : found == listed.end() ? Listed{} : found->second;
    for_each_usable(*c.codec, [&](const Impl& impl) {
      const std::vector<float> got = values_of(c, impl, frame);
      EXPECT_TRUE(listed_as(got) == want)
          << c.name << ' ' << impl.name << ": not the values of values.sha256; "
          << how_they_differ(got, reference);
    });
  }
  if (rewriting()) write(folder() / "values.sha256", list);
  EXPECT_EQ(bytes_as_string(read(folder() / "values.sha256")), list);
}

// A value that changes by a bit, or that is missing, changes its line of the list, and is found.
TEST(Golden, DifferingValueIsNamed) {
  const std::vector<float> want = stream(0, 33);
  std::vector<float> got = want;
  got[20] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(got[20]) ^ 1U);
  EXPECT_FALSE(listed_as(got) == listed_as(want));
  EXPECT_NE(how_they_differ(got, want).find("value 20 is "), std::string::npos);
  EXPECT_FALSE(listed_as(std::span(want).first(32)) == listed_as(want));
  EXPECT_NE(how_they_differ(want, want).find("TITHE_GOLDEN_VALUES"), std::string::npos);
}

TEST(Golden, TruncatedOrFlippedFramesGiveAStatus) {
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".bin") continue;
    auto frame = read(entry.path());
    ASSERT_TRUE(parse_frame(frame).ok()) << entry.path();
    for (std::size_t cut = 0; cut < frame.size(); ++cut)
      ASSERT_FALSE(parse_frame(ByteView(frame).first(cut)).ok()) << entry.path() << " cut to " << cut;
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      ASSERT_FALSE(parse_frame(frame).ok()) << entry.path() << " bit " << bit;
      frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
  }
}

// A checksum can be right by chance or by malice: the codec's own rules must hold without it.
TEST(Golden, EveryTruncatedPayloadIsRefusedByItsCodec) {
  for (const Case& c : cases()) {
    if (c.parts != 1) continue;
    const auto frame = read(folder() / (c.name + ".bin"));
    const ByteView payload = ByteView(frame).subspan(kFrameHeaderBytes);
    const auto r = ready(c, 0);
    std::vector<float> out(c.n);
    const auto answer = [&](ByteView bytes) {
      return c.codec->reference().decode(r->call, {&bytes, 1}, {}, out).code();
    };
    for (std::size_t cut = 0; cut < payload.size(); ++cut)
      ASSERT_EQ(answer(payload.first(cut)), Code::kCorrupt) << c.name << " cut to " << cut;
    EXPECT_EQ(answer(payload), Code::kOk) << c.name;
  }
}

TEST(Golden, FolderContainsExactlyTheListedFrames) {
  std::set<std::string> listed;
  for (const Case& c : cases()) {
    listed.insert(c.name + ".bin");
    if (is_sample(c)) listed.insert(c.name + ".txt");
    if (c.codec->phases.size() > 1) listed.insert(c.name + ".context");
  }
  for (const auto& [name, header] : flagged()) listed.insert(name + ".bin");
  for (const auto& [name, bytes] : engine_files()) listed.insert(name);
  for (const auto& entry : fs::directory_iterator(folder())) {
    const auto extension = entry.path().extension();
    const std::set<std::string> made = {".bin", ".txt", ".state", ".context"};
    if (!made.contains(extension.string())) continue;
    EXPECT_TRUE(listed.contains(entry.path().filename().string())) << entry.path() << ": no case makes it";
  }
}

TEST(Golden, DocumentsDescribeEveryCodec) {
  std::string headings;  // of docs/reference/format.md and the pages beside it; equal payloads share one
  for (const auto& entry : fs::directory_iterator(fs::path(TITHE_SOURCE_DIR) / "docs/reference")) {
    if (!entry.path().filename().string().starts_with("format")) continue;
    std::istringstream lines(bytes_as_string(read(entry.path())));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("### ")) headings += " " + line.substr(4) + ",";
  }
  for (const Codec* c : all_codecs()) {
    std::ostringstream entry;
    entry << ' ' << c->name << " (" << static_cast<int>(id_of(*c)) << "),";
    EXPECT_NE(headings.find(entry.str()), std::string::npos)
        << "no heading of docs/reference/format*.md names" << entry.str();
  }
}

}  // namespace
}  // namespace tithe::golden
