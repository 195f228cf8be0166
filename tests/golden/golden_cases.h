// SPDX-License-Identifier: Apache-2.0
#pragma once
// The golden frames: for each codec of codecs.def a few small inputs, and the frames without a payload.
// Everything is derived from counters and exact arithmetic, so that any machine makes the same inputs.
#include <string>
#include <vector>

#include "base/rng.h"
#include "support/phases.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"
#include "tithe/seam/frame.h"

namespace tithe::golden {

// One golden frame: <name>.bin, and a line of values.sha256 for the values that it decodes to (golden_values.h).
struct Case {
  std::string name;
  const Codec* codec;
  std::size_t n;
  int parts;                // payloads joined under the concat law; 1: a plain frame
  std::string params = {};  // the part of a spec string after the colon
};

inline bool has_law(const Codec& codec, Law law) {
  for (const Law l : codec.phases.back().laws)
    if (l == law) return true;
  return false;
}

inline bool has_param(const Codec& codec, std::string_view name) {
  for (const ParamSpec& p : codec.params)
    if (p.name == name) return true;
  return false;
}

// The longest case crosses a block boundary of block codecs and stays small for the others.
inline std::size_t longest(const Codec& codec) {
  return codec.phases.back().bound(defaults(codec), 4500) <= 2048 ? 4500 : 300;
}

inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Codec* c : all_codecs()) {
    const std::string codec(c->name);
    all.push_back({codec + "_none", c, 0, 1});
    all.push_back({codec + "_one", c, 1, 1});
    all.push_back({codec + "_odd", c, 33, 1});
    all.push_back({codec + "_many", c, longest(*c), 1});
    const std::string much = has_param(*c, "ratio") ? "ratio=0.2," : "";
    if (has_param(*c, "indices"))
      all.push_back({codec + "_packed", c, longest(*c), 1, much + "values=bf16,indices=delta"});
    else if (has_param(*c, "values"))
      all.push_back({codec + "_8bit", c, 300, 1, much + "values=8bit"});
    if (c->name == "topk")  // the other forms, which all sparsifiers share
      for (const std::string form : {"fp16,indices=u32", "8bit,indices=auto", "4bit,indices=bitmap",
                                     "inceptionn,indices=delta", "2bit,indices=delta,block=256"})
        all.push_back({codec + "_" + form.substr(0, 4), c, longest(*c), 1, "ratio=0.1,values=" + form});
    if (has_law(*c, Law::kConcat)) all.push_back({codec + "_concat", c, longest(*c), 3});
    if (c->name == "eden")  // a whole block and one of the tail
      for (const std::string bits : {"1", "1.6", "2", "3", "4"})
        all.push_back({codec + "_" + bits + "bit", c, 1500, 1, "bits=" + bits});
    // Two full blocks and a shorter one.
    if (c->name == "zip") all.push_back({codec + "_blocks", c, 2500, 1});
    if (c->name == "inceptionn") all.push_back({codec + "_burst", c, 300, 1, "layout=burst,mode=literal"});
  }
  return all;
}

// One case per codec has its values in readable form, as hexadecimal floats.
inline bool is_sample(const Case& c) { return c.name == std::string(c.codec->name) + "_odd"; }

// Value i of stream k: a signed 12-bit number at one of 16 scales, so that sums of two are exact; a few zeros
// of either sign.
inline float value(std::uint32_t stream, std::uint32_t i) {
  const std::uint32_t r = draw32(0x601dULL + stream, i);
  if (r % 19 == 0) return (r & 64) != 0 ? -0.0F : 0.0F;
  const auto mantissa = static_cast<float>(static_cast<int>(r >> 8 & 0xfff) - 2048);
  return mantissa / static_cast<float>(1U << (10 + (r >> 24) % 16));
}

inline std::vector<float> stream(std::uint32_t k, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = value(k, static_cast<std::uint32_t>(i));
  return v;
}

inline FrameHeader header_of(const Case& c) {
  return {.codec = id_of(*c.codec),
          .run = 0x7275'6e00'0000'0001,
          .round = 5,
          .tensor = 2,
          .chunk = 1,
          .phase = phases::last_phase(*c.codec),
          .flags = static_cast<std::uint8_t>(c.parts == 1 ? 0 : kFlagConcat),
          .source = 3,
          .parts = static_cast<std::uint16_t>(c.parts),
          .values = c.n,
          .payload_bytes = 0,
          .plan = 0x706c'616e'0000'0001};
}

inline Call call_of(const Case& c, int part) {
  Call call;
  call.settings = defaults(*c.codec);
  if (!c.params.empty()) call.settings = parse_spec(std::string(c.codec->name) + ":" + c.params)->settings;
  call.seed = 1000 + static_cast<std::uint64_t>(part);
  call.shared_seed = 77;
  call.round = 5;
  call.tensor = 2;
  call.chunk = 1;
  call.phase = phases::last_phase(*c.codec);
  return call;
}

}  // namespace tithe::golden
