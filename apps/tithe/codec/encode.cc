// SPDX-License-Identifier: Apache-2.0
// tithe encode: encodes a file of values as a frame.
#include <fmt/format.h>

#include <charconv>

#include "encode_once.h"
#include "frame_file.h"
#include "output.h"
#include "tithe/limits.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"
#include "value_file.h"
#include "verb.h"

namespace tithe::cli {
namespace {

// Empty if the text is a whole number, else an error. The parser's own conversion accepts -1 and truncates large
// numbers.
std::string whole_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("{} must be a whole number from 0 to 2^64 - 1", text);
}

struct EncodeArgs {
  std::string codec;
  std::string in;
  std::string out;
  std::uint64_t seed = 0;
  std::size_t max_values = kDefaultMaxValues;
};

Result<Report> encode(const EncodeArgs& args) {
  Result<Spec> spec = parse_spec(args.codec);
  if (!spec.ok()) return spec.status();
  if (const std::size_t phases = spec->codec->phases.size(); phases != 1)
    return Status(Code::kUnsupported,
                  fmt::format("{} needs {} exchanges between ranks; a file has room for only one",
                              spec->codec->name, phases));
  Result<std::vector<std::uint8_t>> bytes = read_file(args.in, args.max_values);
  if (!bytes.ok()) return bytes.status();
  if (looks_like_frame(*bytes))
    return Status(Code::kInvalid,
                  fmt::format("{0}: is a frame already; decode it with `tithe decode {0} OUT`", args.in));
  Result<std::vector<float>> values = parse_values(args.in, *bytes, args.max_values);
  if (!values.ok()) return values.status();
  Result<Lossy> encoded = encode_once(*spec, *values, args.seed);
  if (!encoded.ok()) return Status(encoded.status().code(), args.in + ": " + encoded.status().what());

  std::vector<std::uint8_t> frame(kFrameHeaderBytes);
  frame.insert(frame.end(), encoded->payload.begin(), encoded->payload.end());
  TITHE_TRY(seal_frame(
      {.codec = id_of(*spec->codec), .values = values->size(), .payload_bytes = encoded->payload.size()},
      frame));
  TITHE_TRY(write_file(args.out, frame));

  const auto n = static_cast<double>(values->size());
  const double bits = n == 0 ? 0 : 8 * static_cast<double>(encoded->payload.size()) / n;
  const double whole = norm(*values);
  const double error = whole == 0 ? 0 : norm(encoded->left) / whole;
  Report report;
  report.json = {{"codec", to_string(*spec)},
                 {"values", values->size()},
                 {"payload_bytes", encoded->payload.size()},
                 {"frame_bytes", frame.size()},
                 {"bits_per_value", bits},
                 {"relative_error", error},
                 {"out", args.out}};
  report.text = fmt::format(
      "{}: {} values, {} payload bytes + {} of header, {:.4f} bits per value\n"
      "not sent: {:.2f}% of the L2 norm (feedback sends it in later rounds)\n",
      args.out, values->size(), encoded->payload.size(), kFrameHeaderBytes, bits, 100 * error);
  return report;
}

Run declare_encode(CLI::App& app) {
  auto args = std::make_shared<EncodeArgs>();
  app.add_option("CODEC", args->codec, "codec with its parameters, e.g. topk:ratio=0.01")->required();
  app.add_option("IN", args->in, "values: .npy (float32) or bare little-endian float32; -: standard input")
      ->required();
  add_output(app, "OUT", args->out, "the frame; -: standard output")->required();
  app.add_option("--seed", args->seed, "seed of the codec's random draws")
      ->check(whole_number)
      ->capture_default_str();
  add_most_values(app, args->max_values);
  return [args] { return encode(*args); };
}

}  // namespace

const Verb encode_verb = {.name = "encode",
                          .doc = "encode a file of values as one frame (docs/reference/format.md)",
                          .declare = declare_encode};

}  // namespace tithe::cli
