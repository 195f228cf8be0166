// SPDX-License-Identifier: Apache-2.0
// tithe inspect: shows the content of a file of values or a frame; for values, also the payload size of each codec.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/finite.h"
#include "encode_once.h"
#include "frame_file.h"
#include "tithe/seam/catalogue.h"
#include "value_file.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct InspectArgs {
  std::string in;
  std::size_t max_values = kDefaultMaxValues;
};

// The share of the squared norm in the largest values, `ratio` of them: the more, the better sparsifiers work.
double share_of_largest(std::vector<float> values, double ratio) {
  const auto k = static_cast<std::ptrdiff_t>(std::ceil(ratio * static_cast<double>(values.size())));
  const double whole = norm(values);
  if (whole == 0) return 0;
  std::nth_element(values.begin(), values.begin() + (k - 1), values.end(),
                   [](float a, float b) { return std::fabs(a) > std::fabs(b); });
  const double part = norm(std::span(values).first(static_cast<std::size_t>(k)));
  return part * part / (whole * whole);
}

void describe_values(std::span<const float> values, Report& report) {
  std::size_t zeros = 0;
  std::vector<float> finite;
  double sum = 0;
  for (const float v : values) {
    zeros += v == 0;
    if (!is_finite(v)) continue;
    finite.push_back(v);
    sum += v;
  }
  Json json = {{"count", values.size()}, {"zeros", zeros}, {"not_finite", values.size() - finite.size()}};
  report.text += fmt::format("values      {}\nzeros       {}\nnot finite  {}\n", values.size(), zeros,
                             values.size() - finite.size());
  if (!finite.empty()) {
    const auto count = static_cast<double>(finite.size());
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    const double mean = sum / count;
    const double l2 = norm(finite);
    const double deviation = std::sqrt(std::max(0.0, l2 * l2 / count - mean * mean));
    const double percent1 = share_of_largest(finite, 0.01);
    const double permille1 = share_of_largest(finite, 0.001);
    // Written as null if not finite.
    json["min"] = *low;
    json["max"] = *high;
    json["mean"] = mean;
    json["deviation"] = deviation;
    json["l2"] = l2;
    json["energy_in_largest_1_percent"] = percent1;
    json["energy_in_largest_0.1_percent"] = permille1;
    report.text += fmt::format(
        "min, max    {:.6g}, {:.6g}\nmean        {:.6g}\ndeviation   {:.6g}\nL2 norm     {:.6g}\n"
        "energy      {:.1f}% in the largest 1% of values, {:.1f}% in the largest 0.1%\n",
        *low, *high, mean, deviation, l2, 100 * percent1, 100 * permille1);
  }
  report.json["values"] = std::move(json);
}

Status describe_codecs(std::span<const float> values, Report& report) {
  report.json["codecs"] = Json::array();
  report.text +=
      fmt::format("\n{:<10} {:>14} {:>11} {:>10}\n", "codec", "payload bytes", "bits/value", "not sent");
  const double whole = norm(values);
  for (const Codec* codec : all_codecs()) {
    if (codec->phases.size() != 1) continue;
    Result<Lossy> once = encode_once({codec, defaults(*codec), {}}, values, 1);
    if (!once.ok()) return once.status();
    const double bits = 8 * static_cast<double>(once->payload.size()) / static_cast<double>(values.size());
    const double error = whole == 0 ? 0 : norm(once->left) / whole;
    report.json["codecs"].push_back({{"name", codec->name},
                                     {"payload_bytes", once->payload.size()},
                                     {"bits_per_value", bits},
                                     {"relative_error", error}});
    report.text += fmt::format("{:<10} {:>14} {:>11.4f} {:>9.2f}%\n", codec->name, once->payload.size(), bits,
                               100 * error);
  }
  return {};
}

Result<Report> inspect_frame(const InspectArgs& args, ByteView bytes) {
  const auto named = [&](const Status& s) { return Status(s.code(), args.in + ": " + s.what()); };
  Result<FrameFile> file = open_frame(bytes);
  if (!file.ok()) return named(file.status());
  const FrameHeader& h = file->frame.header;
  const std::string codec = file->codec == nullptr
                                ? fmt::format("id {}, unknown to this build", static_cast<int>(h.codec))
                                : std::string(file->codec->name);
  Json parts = Json::array();
  for (const ByteView part : file->parts) parts.push_back(part.size());
  Report report;
  report.json = {{"kind", "frame"},
                 {"header",
                  {{"version", kFrameVersion},
                   {"codec", codec},
                   {"codec_id", static_cast<int>(h.codec)},
                   {"run", h.run},
                   {"round", h.round},
                   {"tensor", h.tensor},
                   {"chunk", h.chunk},
                   {"phase", h.phase},
                   {"flags", h.flags},
                   {"source", h.source},
                   {"parts", h.parts},
                   {"values", h.values},
                   {"payload_bytes", h.payload_bytes},
                   {"plan", h.plan}}},
                 {"part_bytes", parts},
                 {"checksum", "right"}};
  report.text = fmt::format(
      "frame       version {}, checksum right\ncodec       {}\nrun, plan   {:#x}, {:#x}\n"
      "place       round {}, tensor {}, chunk {}, phase {}, from rank {}\nflags       {}{}{}{}\n"
      "payload     {} bytes in {} part{}, for {} values\n",
      kFrameVersion, codec, h.run, h.plan, h.round, h.tensor, h.chunk, h.phase, h.source,
      h.flags == 0 ? "none" : "", (h.flags & kFlagNonFinite) != 0 ? "non-finite" : "",
      (h.flags & kFlagConcat) != 0 ? "concat" : "", (h.flags & kFlagEmpty) != 0 ? "empty" : "",
      h.payload_bytes, h.parts, h.parts == 1 ? "" : "s", h.values);
  Result<std::vector<float>> values = values_of(*file, args.max_values);
  if (values.ok()) {
    report.text += "\n";
    describe_values(*values, report);
  } else if (values.status().code() == Code::kUnsupported) {
    report.text += "values      " + values.status().what() + "\n";
    report.json["values"] = nullptr;
  } else {
    return named(values.status());
  }
  return report;
}

Result<Report> inspect(const InspectArgs& args) {
  Result<std::vector<std::uint8_t>> bytes = read_file(args.in, args.max_values);
  if (!bytes.ok()) return bytes.status();
  if (looks_like_frame(*bytes)) return inspect_frame(args, *bytes);
  Result<std::vector<float>> values = parse_values(args.in, *bytes, args.max_values);
  if (!values.ok()) return values.status();
  Report report;
  report.json["kind"] = "values";
  describe_values(*values, report);
  const bool finite = std::all_of(values->begin(), values->end(), [](float v) { return is_finite(v); });
  if (!values->empty() && finite) TITHE_TRY(describe_codecs(*values, report));
  return report;
}

Run declare_inspect(CLI::App& app) {
  auto args = std::make_shared<InspectArgs>();
  app.add_option("IN", args->in, "values (.npy or bare little-endian float32), or a frame; -: standard input")
      ->required();
  add_most_values(app, args->max_values);
  return [args] { return inspect(*args); };
}

}  // namespace

const Verb inspect_verb = {
    .name = "inspect",
    .doc = "show the contents of a file of values or a frame, and the payload of each codec",
    .declare = declare_inspect};

}  // namespace tithe::cli
