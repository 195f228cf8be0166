// SPDX-License-Identifier: Apache-2.0
#pragma once
// All workers of a round through both phases of a codec whose payloads add up, as a ring takes them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "codec/draws_for_test.h"
#include "tithe/spec.h"

namespace tithe::rounds {

using Floats = std::vector<float>;
using draws::bell;
using Payload = std::vector<std::uint8_t>;

struct Round {
  Payload agreed;            // phase 0, combined
  Payload sum;               // phase 1, combined
  std::vector<Floats> left;  // of each worker's encode
  Floats rounding;           // what combining put aside
  Floats result;
};

inline Call call_of(const std::string& spec, unsigned worker) {
  Call call;
  call.settings = parse_spec(spec)->settings;
  call.seed = 100 + worker;
  call.shared_seed = 9;
  call.round = 4;
  return call;
}

inline Payload encode(const Codec& codec, const Impl& impl, const Call& call, const Floats& x,
                      Floats* left = nullptr) {
  Payload out(codec.phases[call.phase].bound(call.settings, x.size()));
  if (left) left->resize(x.size());
  const Result<Encoded> done =
      impl.encode(call, {x.data(), nullptr, left ? left->data() : nullptr, x.size()}, out);
  EXPECT_TRUE(done.ok() && done->finite);
  if (done.ok()) out.resize(done->bytes);
  return out;
}

inline Round round_by(const Impl& impl, const std::string& spec, const std::vector<Floats>& x) {
  const Codec& codec = *parse_spec(spec)->codec;
  const std::size_t n = x[0].size();
  Round round;
  round.rounding.resize(n);
  round.left.resize(x.size());
  round.result.resize(n);
  for (std::uint8_t phase = 0; phase < 2; ++phase) {
    Payload& all = phase == 0 ? round.agreed : round.sum;
    for (unsigned w = 0; w < x.size(); ++w) {
      Call call = call_of(spec, w);
      call.phase = phase;
      call.context = round.agreed;
      if (phase == 0) call.context = {};
      const Payload mine = encode(codec, impl, call, x[w], phase == 0 ? nullptr : &round.left[w]);
      if (w == 0) {
        all = mine;
        continue;
      }
      const auto s = codec.phases[phase].combine(call, n, all, mine, round.rounding.data());
      EXPECT_TRUE(s.ok() && s->finite) << s.status().what();
    }
  }
  Call reads;  // neither seeds nor round: all that shapes the values is in the payloads
  reads.settings = parse_spec(spec)->settings;
  reads.phase = 1;
  reads.context = round.agreed;
  const ByteView view = round.sum;
  EXPECT_TRUE(impl.decode(reads, {&view, 1}, {}, round.result).ok());
  return round;
}

inline Round round_of(const std::string& spec, const std::vector<Floats>& x) {
  return round_by(parse_spec(spec)->codec->best(this_machine()), spec, x);
}

}  // namespace tithe::rounds
