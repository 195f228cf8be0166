// SPDX-License-Identifier: Apache-2.0
// tithe decode: decodes a frame to a file of values. The frame names its codec.
#include <fmt/format.h>

#include "frame_file.h"
#include "output.h"
#include "value_file.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct DecodeArgs {
  std::string in;
  std::string out;
  std::size_t max_values = kDefaultMaxValues;
};

Result<Report> decode(const DecodeArgs& args) {
  const auto named = [&](const Status& s) { return Status(s.code(), args.in + ": " + s.what()); };
  Result<std::vector<std::uint8_t>> bytes = read_file(args.in, args.max_values);
  if (!bytes.ok()) return bytes.status();
  if (is_npy(*bytes))
    return Status(
        Code::kInvalid,
        fmt::format("{0}: has values, not a frame; encode it with `tithe encode CODEC {0} OUT`", args.in));
  Result<FrameFile> file = open_frame(*bytes);
  if (!file.ok()) return named(file.status());
  Result<std::vector<float>> values = values_of(*file, args.max_values);
  if (!values.ok()) return named(values.status());
  TITHE_TRY(write_values(args.out, *values));
  const std::string_view codec = file->codec == nullptr ? "unknown" : file->codec->name;
  Report report;
  report.json = {{"codec", codec},
                 {"values", values->size()},
                 {"payload_bytes", file->frame.header.payload_bytes},
                 {"parts", file->frame.header.parts},
                 {"out", args.out}};
  report.text = fmt::format("{}: {} values of {}, from {} payload bytes\n", args.out, values->size(), codec,
                            file->frame.header.payload_bytes);
  return report;
}

Run declare_decode(CLI::App& app) {
  auto args = std::make_shared<DecodeArgs>();
  app.add_option("IN", args->in, "a frame; -: standard input")->required();
  add_output(app, "OUT", args->out,
             "values: .npy if the name ends in .npy, else bare little-endian float32; -: standard output")
      ->required();
  add_most_values(app, args->max_values);
  return [args] { return decode(*args); };
}

}  // namespace

const Verb decode_verb = {.name = "decode", .doc = "decode a frame to values", .declare = declare_decode};

}  // namespace tithe::cli
