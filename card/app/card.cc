// SPDX-License-Identifier: Apache-2.0
// tithe card: INCEPTIONN's network card (card/docs/card.md), between two interfaces or on a capture file.
#include <fmt/format.h>

#include "card/model/capture.h"
#include "card_engine.h"
#include "card_ports.h"
#include "card_relay.h"
#include "file_io.h"
#include "output.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr std::size_t kMaxCaptureBytes = std::size_t{1} << 32;

struct CardArgs {
  std::string host, wire;             // interfaces
  std::string capture, out, towards;  // files; "wire" or "host"
  std::string engine = "model", rtl;
  std::string mode = "strict";
  bool lossy = false;
  int b = 10;
  int tos = 0x28;
  std::size_t least = 64;
  double delay_ms = 0;
};

card::Config config_of(const CardArgs& args) {
  return {.exact = !args.lossy,
          .mode = args.mode == "strict" ? inceptionn::kStrict : inceptionn::kLiteral,
          .b = args.b,
          .dscp = static_cast<unsigned>(args.tos) >> 2,
          .least = args.least};
}

Json json_of(const card::Counters& n) {
  return {{"passed", n.passed},   {"packed", n.packed},     {"inexact", n.inexact},    {"grown", n.grown},
          {"dropped", n.dropped}, {"bytes_in", n.bytes_in}, {"bytes_out", n.bytes_out}};
}

std::string text_of(std::string_view direction, std::string_view done, const card::Counters& n) {
  return fmt::format(
      "to {}  {} frames, {} bytes to {}: {} {}, {} passed ({} inexact, {} grown), {} dropped\n", direction,
      n.passed + n.packed + n.dropped, n.bytes_in, n.bytes_out, n.packed, done, n.passed, n.inexact, n.grown,
      n.dropped);
}

Result<Report> report_of(const CardArgs& args, CardEngine& engine) {
  const auto counters = engine.counters();
  if (!counters.ok()) return counters.status();
  const card::Counters &to_wire = (*counters)[0], &to_host = (*counters)[1];
  Report report;
  report.json = {{"engine", args.engine}, {"to_wire", json_of(to_wire)}, {"to_host", json_of(to_host)}};
  report.json["cycles"] = engine.cycles() == 0 ? Json(nullptr) : Json(engine.cycles());
  if (to_wire.bytes_in > 0) report.text += text_of("wire", "packed", to_wire);
  if (to_host.bytes_in > 0) report.text += text_of("host", "restored", to_host);
  if (report.text.empty()) report.text = "no frames received\n";
  if (engine.cycles() > 0) report.text += fmt::format("{} cycles\n", engine.cycles());
  return report;
}

Result<Report> over_capture(const CardArgs& args, CardEngine& engine) {
  const Result<std::vector<std::uint8_t>> bytes = read_file(args.capture, kMaxCaptureBytes / kReadPerValue);
  if (!bytes.ok()) return bytes.status();
  const Result<std::vector<card::Captured>> frames = card::read_capture(*bytes);
  if (!frames.ok())
    return Status(frames.status().code(), fmt::format("{}: {}", args.capture, frames.status().what()));
  std::vector<std::uint8_t> file;
  card::begin_capture(file);
  for (const card::Captured& one : *frames) {
    if (one.frame.empty()) continue;
    const Result<ByteView> out =
        engine.pass(args.towards == "host" ? card::Direction::kToHost : card::Direction::kToWire, one.frame);
    if (!out.ok()) return out.status();
    if (!out->empty()) card::add_to_capture(file, one.ns, *out);
  }
  TITHE_TRY(write_file(args.out, file));
  return report_of(args, engine);
}

Result<Report> between_interfaces(const CardArgs& args, CardEngine& engine) {
  if (args.host == args.wire) return Status(Code::kInvalid, "--host and --wire must be different interfaces");
  // The wire is opened first, so that the host side has a link when its interface comes up.
  Result<std::unique_ptr<CardPort>> wire = open_port(args.wire);
  if (!wire.ok()) return wire.status();
  Result<std::unique_ptr<CardPort>> host = open_port(args.host);
  if (!host.ok()) return host.status();
  const Result<RelayCounts> counts = relay(engine, **host, **wire, args.delay_ms / 1e3);
  if (!counts.ok()) return counts.status();
  Result<Report> report = report_of(args, engine);
  if (!report.ok()) return report;
  report->json["to_wire"]["lost"] = counts->lost[0];
  report->json["to_host"]["lost"] = counts->lost[1];
  report->json["seconds"] = counts->seconds;
  report->json["processor_seconds"] = counts->processor_seconds;
  if (counts->lost[0] + counts->lost[1] > 0)
    report->text +=
        fmt::format("lost     {} to the wire, {} to the host: the queue after the card was full\n",
                    counts->lost[0], counts->lost[1]);
  report->text +=
      fmt::format("{:.1f} s, {:.2f} s of a processor\n", counts->seconds, counts->processor_seconds);
  return report;
}

Result<Report> card(const CardArgs& args) {
  const bool live = !args.host.empty() || !args.wire.empty();
  const bool file = !args.capture.empty() || !args.out.empty();
  if (live == file || (live && (args.host.empty() || args.wire.empty())) ||
      (file && (args.capture.empty() || args.out.empty())))
    return Status(Code::kInvalid,
                  "a card needs --host and --wire, two interfaces, or --capture and --out, two files");
  if (args.engine == "rtl" && args.rtl.empty())
    return Status(Code::kInvalid,
                  "--engine rtl needs --rtl, the program that `make -C card/rtl engine` builds");
  if (args.engine == "model" && !args.rtl.empty())
    return Status(Code::kInvalid, "--rtl goes with --engine rtl");
  std::unique_ptr<CardEngine> engine;
  if (args.engine == "model") {
    engine = card_model(config_of(args));
  } else {
    Result<std::unique_ptr<CardEngine>> started = card_rtl(config_of(args), args.rtl);
    if (!started.ok()) return started.status();
    engine = std::move(*started);
  }
  if (!live && args.delay_ms > 0)
    return Status(Code::kInvalid,
                  "--delay-ms: only with --host and --wire, because frames of a capture have timestamps");
  return live ? between_interfaces(args, *engine) : over_capture(args, *engine);
}

Run declare_card(CLI::App& app) {
  auto args = std::make_shared<CardArgs>();
  app.add_option("--host", args->host,
                 "the interface of the host's stack: a TAP, created if it does not exist");
  app.add_option("--wire", args->wire, "the interface of the link");
  app.add_option("--capture", args->capture, "a pcap file of frames, instead of interfaces");
  add_output(app, "--out", args->out, "the pcap file for the frames that leave the card");
  args->towards = "wire";
  app.add_option("--to", args->towards, "direction of the captured frames: wire or host")
      ->check(CLI::IsMember({"wire", "host"}))
      ->capture_default_str();
  app.add_option("--engine", args->engine, "model, the C++ model; or rtl, the Verilated card")
      ->check(CLI::IsMember({"model", "rtl"}))
      ->capture_default_str();
  app.add_option("--rtl", args->rtl, "with --engine rtl: the program that `make -C card/rtl engine` builds");
  app.add_flag("--lossy", args->lossy, "the paper's mode: also packs values that do not decode bit for bit");
  app.add_option("--mode", args->mode, "strict, or literal as in the paper")
      ->check(CLI::IsMember({"strict", "literal"}))
      ->capture_default_str();
  app.add_option("--b", args->b, "the error bound is 2^-b")
      ->check(CLI::Range(1, inceptionn::kMaxB))
      ->capture_default_str();
  app.add_option("--tos", args->tos, "type of service of packed frames; the two lowest bits are ignored")
      ->check(CLI::Range(0, 255))
      ->default_str("0x28");
  app.add_option("--least", args->least, "smallest payload of a packed frame, in bytes")
      ->check(CLI::Range(std::size_t{0}, std::size_t{65535}))
      ->capture_default_str();
  app.add_option("--delay-ms", args->delay_ms,
                 "delay of frames to the wire in milliseconds, to emulate a long link")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  return [args] { return card(*args); };
}

}  // namespace

const Verb card_verb = {
    .name = "card",
    .doc = "run INCEPTIONN's network card: pack gradients between two interfaces, or in a capture",
    .declare = declare_card};

}  // namespace tithe::cli
