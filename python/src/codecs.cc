// SPDX-License-Identifier: Apache-2.0
// The registry, and stand-alone use of codecs: values to one frame and back.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "catalogue/settings.h"
#include "core.h"
#include "interruptible.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/store/private_folder.h"
#include "plan/allowance.h"
#include "tithe/choices.h"
#include "tithe/limits.h"
#include "tithe/schedule.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"
#include "tithe/seam/graph.h"

namespace tithe::python {
namespace {

constexpr std::size_t kDefaultValues = std::size_t{1} << 20;  // for which bits per value are given

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

nb::dict describe(const ParamSpec& p) {
  nb::dict d;
  d["name"] = p.name;
  d["default"] = p.fallback;
  d["low"] = p.low;
  d["high"] = p.high;
  d["doc"] = p.doc;
  nb::list choices;
  for (const std::string_view c : p.choices) choices.append(c);
  if (!p.choices.empty()) {
    d["default"] = p.choices[static_cast<std::size_t>(p.fallback)];
    d["choices"] = choices;
  }
  return d;
}

nb::dict describe(const Codec& codec) {
  nb::dict d;
  d["name"] = codec.name;
  d["id"] = static_cast<int>(id_of(codec));
  d["doc"] = codec.doc;
  nb::list phases, params, impls;
  std::size_t bytes = 0;
  for (const Phase& phase : codec.phases) {
    nb::list laws;
    for (const Law law : phase.laws) laws.append(name(law));
    nb::dict entry;
    entry["name"] = phase.name;
    entry["laws"] = laws;
    phases.append(entry);
    bytes += phase.bound(defaults(codec), kDefaultValues);
  }
  for (const ParamSpec& p : codec.params) params.append(describe(p));
  for (const Impl& impl : codec.impls)
    if (impl.usable(this_machine())) impls.append(impl.name);
  d["phases"] = phases;
  d["params"] = params;
  d["impls"] = impls;
  d["bits_per_value"] = 8.0 * static_cast<double>(bytes) / static_cast<double>(kDefaultValues);
  d["exact_ledger"] = codec.traits.exact_ledger;
  d["lossless"] = codec.traits.lossless;
  d["selects"] = codec.traits.selects;
  d["unbiased"] = codec.traits.unbiased;
  return d;
}

// The spec of a codec for stand-alone use: its payload must not depend on other ranks.
Spec alone(std::string_view text) {
  Spec spec = unwrap(parse_spec(text));
  if (spec.codec->phases.size() != 1)
    raise({Code::kUnsupported, std::string(spec.codec->name) +
                                   " needs several exchanges between ranks: use it through a Session"});
  prepare(spec);
  return spec;
}

// 64-byte aligned memory, as Call::scratch requires. Pages that the codec does not touch take no memory.
struct Scratch {
  explicit Scratch(std::size_t bytes)
      : room(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free),
        view(room.get(), bytes) {
    if (room == nullptr) throw std::bad_alloc();
  }
  std::unique_ptr<std::uint8_t, void (*)(void*)> room;
  Bytes view;
};

nb::bytes encode(std::string_view text, const nb::handle given) {
  const Floats values = array_argument<Floats>(given, true);
  const Spec spec = alone(text);
  const std::size_t n = values.size();
  std::vector<std::uint8_t> frame(kFrameHeaderBytes + spec.codec->phases[0].bound(spec.settings, n));
  Encoded done;
  Status status;
  {
    const WithoutGil released;
    Scratch scratch(spec.codec->scratch(spec.settings, n));
    const Call call{.settings = spec.settings, .scratch = scratch.view};
    const EncodeInput input{.grad = values.data(), .residual = nullptr, .residual_out = nullptr, .n = n};
    const Result<Encoded> encoded =
        spec.codec->best(this_machine()).encode(call, input, Bytes(frame).subspan(kFrameHeaderBytes));
    status = encoded.status();
    if (encoded.ok()) {
      done = *encoded;
      if (!done.finite) done.bytes = 0;
      frame.resize(kFrameHeaderBytes + done.bytes);
      const auto flags = static_cast<std::uint8_t>(done.finite ? 0 : kFlagNonFinite);
      status = seal_frame(
          {.codec = id_of(*spec.codec), .flags = flags, .values = n, .payload_bytes = done.bytes}, frame);
    }
  }
  check(status);
  return to_bytes(frame);
}

Status decode_into(const ParsedFrame& frame, const Codec& codec, const Settings& settings,
                   std::span<float> out) {
  if (frame.header.flags & kFlagNonFinite) {
    std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
    return {};
  }
  std::vector<ByteView> parts(std::max<std::size_t>(frame.header.parts, 1));
  TITHE_TRY(split_parts(frame, parts));
  Scratch scratch(codec.scratch(settings, out.size()));
  const Call call{.settings = settings, .scratch = scratch.view};
  return codec.best(this_machine()).decode(call, parts, {}, out);
}

const Codec& codec_of(const FrameHeader& header) {
  const Codec* codec = find_codec(header.codec);
  if (codec == nullptr)
    raise({Code::kUnsupported,
           "codec id " + std::to_string(static_cast<int>(header.codec)) + " is not in this build of tithe"});
  return *codec;
}

// Checks the header before memory is allocated, since a header can claim any number of values.
Status check_claim(const ParsedFrame& frame, const Codec& codec, std::size_t most) {
  const FrameHeader& header = frame.header;
  if (header.values > std::min(most, kMaxValues))
    return {Code::kInvalid, "the frame states " + std::to_string(header.values) +
                                " values; max_values allows " + std::to_string(std::min(most, kMaxValues))};
  if ((header.flags & (kFlagNonFinite | kFlagEmpty)) == 0 && codec.phases.size() != 1)
    return {Code::kUnsupported,
            std::string(codec.name) +
                " needs several exchanges between ranks: one of its frames cannot be decoded alone"};
  return {};
}

// The settings of the payloads; if `text` is given, they must be those of `text`.
Result<Settings> settings_for(const ParsedFrame& frame, const Codec& codec,
                              std::optional<std::string_view> text) {
  std::optional<Spec> spec;
  if (text) spec = alone(*text);
  if (spec && spec->codec != &codec)
    raise({Code::kInvalid, "the frame was written by " + std::string(codec.name) + ", not by " +
                               std::string(spec->codec->name)});
  if ((frame.header.flags & (kFlagNonFinite | kFlagEmpty)) != 0) return defaults(codec);
  std::vector<ByteView> parts(std::max<std::size_t>(frame.header.parts, 1));
  TITHE_TRY(split_parts(frame, parts));
  if (!spec) return settings_of(codec, frame.header.values, parts);
  const Call call{.settings = spec->settings};
  for (const ByteView part : parts)
    TITHE_TRY(codec.best(this_machine()).check(call, frame.header.values, part));
  return spec->settings;
}

std::uint64_t frame_values(const nb::bytes& data, std::optional<std::string_view> text, std::size_t most) {
  const ParsedFrame frame = unwrap(parse_frame(view_of(data)));
  const Codec& codec = codec_of(frame.header);
  check(check_claim(frame, codec, most));
  unwrap(settings_for(frame, codec, text));
  return frame.header.values;
}

// Writes into `out`, so that Python's array is the only copy.
void decode(const nb::bytes& data, const nb::handle given, std::optional<std::string_view> text) {
  const auto out = array_argument<FloatsOut>(given, false);
  const ParsedFrame frame = unwrap(parse_frame(view_of(data)));
  const Codec& codec = codec_of(frame.header);
  if (frame.header.values != out.size())
    raise({Code::kInvalid, "the frame holds " + std::to_string(frame.header.values) + " values, not " +
                               std::to_string(out.size())});
  check(check_claim(frame, codec, kMaxValues));
  const Settings settings = unwrap(settings_for(frame, codec, text));
  Status status;
  {
    const WithoutGil released;
    status = decode_into(frame, codec, settings, {out.data(), out.size()});
  }
  check(status);
}

}  // namespace

void bind_codecs(nb::module_& m) {
  m.def(
      "codecs",
      [] {
        nb::list all;
        for (const Codec* codec : all_codecs()) all.append(describe(*codec));
        return all;
      },
      "The codecs of this build, one dict each, as `tithe codecs --json` shows them.");
  m.def(
      "strategies",
      [] {
        nb::list all;
        for (const Strategy* s : all_strategies()) all.append(s->name);
        return all;
      },
      "The names of the strategies of this build.");
  m.def(
      "check_spec", [](std::string_view text) { return to_string(unwrap(parse_spec(text))); },
      nb::arg("spec"),
      "The shortest spec of the same codec and settings. Raises ValueError if the spec is invalid.");
  m.def(
      "check_codec",
      [](std::string_view text) {
        return is_auto(text) ? to_string(unwrap(parse_auto(text))) : to_string(unwrap(parse_spec(text)));
      },
      nb::arg("codec"), "Like check_spec(), and also accepts auto.");
  m.def(
      "is_auto", [](std::string_view text) { return is_auto(text); }, nb::arg("codec"),
      "Whether the codec is auto, which measures and plans during the job.");
  m.def(
      "is_lossless",
      [](std::string_view text, std::string_view choices) {
        const ChoiceDefaults defaults{.spec = unwrap(first_spec(text)), .strategy = all_strategies()[0]};
        std::vector<Rule> rules;
        if (!choices.empty()) rules = unwrap(parse_rules(choices));
        return unwrap(Choices::make(std::move(rules), defaults)).lossless();
      },
      nb::arg("spec"), nb::arg("choices") = "",
      "Whether the codec and all rules send every value unchanged, so that no residual exists.");
  m.def(
      "schedule_follows",
      [](std::string_view schedule, std::string_view codec) {
        const Schedule parsed = unwrap(Schedule::parse(schedule, unwrap(first_spec(codec))));
        return std::pair(parsed.follows_loss(), parsed.follows_rate());
      },
      nb::arg("schedule"), nb::arg("codec"),
      "Whether the schedule follows losses, and whether it follows the learning rate. Raises ValueError if "
      "the schedule is invalid.");
  m.def(
      "compiler", [] { return unwrap(lang::find_compiler()).path; },
      "The path of the C++ compiler (TITHE_CXX).");
  m.def(
      "cache_folder", [] { return unwrap(lang::cache_folder()); },
      "The folder of compiled programs (TITHE_CACHE).");
  m.def("encode", &encode, nb::arg("spec"), nb::arg("values"));
  m.def("frame_values", &frame_values, nb::arg("data"), nb::arg("spec") = nb::none(),
        nb::arg("max_values") = kDefaultMaxValues,
        "The number of values of a frame. Raises ValueError if the frame states more than max_values.");
  m.def("decode", &decode, nb::arg("data"), nb::arg("out"), nb::arg("spec") = nb::none());
  m.attr("DEFAULT_MAX_VALUES") = kDefaultMaxValues;
  m.attr("MAX_VALUES") = kMaxValues;
}

}  // namespace tithe::python
