// SPDX-License-Identifier: Apache-2.0
// tithe bench codec: the speed of one codec on this machine, as a ratio to the least work that moves the same bytes.
#include <fmt/format.h>

#include "advisor/measure/codec_rows.h"
#include "base/usable_cores.h"
#include "progress.h"
#include "tithe/seam/catalogue.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct BenchCodecArgs {
  std::string codec;
  std::size_t n = bench::kFromMemory;
  int threads = 1;
  int peers = 4;
  int rounds = 21;
};

Result<bench::Outcome> measure(bench::Row row, const BenchCodecArgs& args) {
  row.n = args.n;
  const bench::Outcome outcome = bench::measure(
      row, {.rounds = args.rounds, .threads = args.threads, .watch = [&](int kept) {
              progress("pairs", static_cast<std::uint64_t>(kept), static_cast<std::uint64_t>(args.rounds));
            }});
  if (outcome.kept > 0) return outcome;
  return Status(Code::kIo,
                fmt::format("{}: every one of {} pairs was interrupted by other work on this machine; "
                            "try again when it is idle, or with a smaller --n",
                            row.name, outcome.tried));
}

Json spread(const bench::Outcome& o) { return Json::array({o.low, o.high}); }

// Runs one encode row and one decode row of the paired benchmark (measure/paired.h).
Result<Report> bench_codec(const BenchCodecArgs& args) {
  Result<Spec> spec = parse_spec(args.codec);
  if (!spec.ok()) return spec.status();
  if (spec->codec->phases.size() != 1)
    return Status(
        Code::kUnsupported,
        fmt::format("{} needs several exchanges between ranks: use `tithe replay --n`", spec->codec->name));
  if (args.threads > usable_cores())
    return Status(Code::kInvalid,
                  fmt::format("--threads {}: this process may use {} cores, and the threads spin",
                              args.threads, usable_cores()));
  if (args.n < static_cast<std::size_t>(args.threads))
    return Status(Code::kInvalid, fmt::format("--n {}: fewer values than threads", args.n));
  const std::string text = to_string(*spec);
  const bool feedback = spec->feedback.kind != Feedback::kNone;
  std::vector<bench::Row> rows;
  bench::add_encode(rows, text, feedback ? bench::Residual::kInPlace : bench::Residual::kNone, 0);
  const bench::Row encode_row = rows.front();
  rows.clear();
  bench::add_decode(rows, text, args.peers, 0);
  const bench::Row decode_row = rows.front();
  Result<bench::Outcome> encode = measure(encode_row, args);
  if (!encode.ok()) return encode.status();
  Result<bench::Outcome> decode = measure(decode_row, args);
  if (!decode.ok()) return decode.status();

  const std::string reference =
      fmt::format("encode: {}; decode: {}", encode_row.reference, decode_row.reference);
  const std::string_view impl = spec->codec->best(this_machine()).name;
  Report report;
  report.json = {{"codec", text},
                 {"impl", impl},
                 {"n", args.n},
                 {"threads", args.threads},
                 {"peers", args.peers},
                 {"feedback", feedback},
                 {"encode_gbs", encode->kernel_gbs},
                 {"decode_gbs", decode->kernel_gbs},
                 {"encode_vs_reference", encode->ratio},
                 {"decode_vs_reference", decode->ratio},
                 {"encode_pairs", encode->kept},
                 {"decode_pairs", decode->kept},
                 {"encode_spread", spread(*encode)},
                 {"decode_spread", spread(*decode)},
                 {"reference", reference}};
  report.text = fmt::format("{} ({}), {} values, {} thread{}\n", text, impl, args.n, args.threads,
                            args.threads == 1 ? "" : "s");
  const auto line = [&](const bench::Row& row, const bench::Outcome& o) {
    report.text += fmt::format("{:<44} {:>7.2f} GB/s, {:.2f} ({:.2f} .. {:.2f}, {} pairs) of {}\n", row.name,
                               o.kernel_gbs, o.ratio, o.low, o.high, o.kept, row.reference);
  };
  line(encode_row, *encode);
  line(decode_row, *decode);
  return report;
}

Run declare_bench_codec(CLI::App& app) {
  auto args = std::make_shared<BenchCodecArgs>();
  app.add_option("CODEC", args->codec, "codec with its parameters, e.g. topk:ratio=0.01")->required();
  app.add_option("--n", args->n, "values over all threads")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32))
      ->capture_default_str();
  app.add_option("--threads", args->threads, "threads that encode and decode, each on its own core")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--peers", args->peers, "payloads decoded in one pass")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--rounds", args->rounds, "pairs of runs")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  return [args] { return bench_codec(*args); };
}

}  // namespace

const Verb bench_codec_verb = {
    .name = "bench_codec",
    .doc = "measure a codec's speed, as a ratio to the least work that moves the same bytes",
    .declare = declare_bench_codec};

}  // namespace tithe::cli
