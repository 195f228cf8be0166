// SPDX-License-Identifier: Apache-2.0
#pragma once
// One encode and its decode, for the unit tests of the dense codecs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/draws_for_test.h"
#include "tithe/spec.h"

namespace tithe::dense {

struct Sent {
  std::vector<std::uint8_t> payload;
  std::vector<float> left;
  std::vector<float> values;  // what the payload stands for
  bool finite = true;
};

inline Spec spec_of(const std::string& text) {
  Result<Spec> spec = parse_spec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().what();
  return spec.ok() ? *spec : Spec{};
}

inline Sent send(const Spec& spec, const Impl& impl, const std::vector<float>& grad, std::uint32_t round = 1,
                 const std::vector<float>& residual = {}) {
  Call call;
  call.settings = spec.settings;
  call.seed = 5;
  call.round = round;
  Sent sent;
  sent.left.resize(grad.size());
  sent.values.resize(grad.size());
  sent.payload.resize(spec.codec->phases[0].bound(spec.settings, grad.size()));
  const Carry carry{grad.data(), residual.empty() ? nullptr : residual.data(), sent.left.data(), grad.size()};
  const Result<Encoded> done = impl.encode(call, carry, sent.payload);
  EXPECT_TRUE(done.ok()) << done.status().what();
  if (!done.ok()) return sent;
  sent.payload.resize((*done).bytes);
  sent.finite = (*done).finite;
  const ByteView view = sent.payload;
  const Status s = impl.decode(call, {&view, 1}, {}, sent.values);
  EXPECT_TRUE(s.ok()) << s.what();
  return sent;
}

inline Sent send(const std::string& spec, const std::vector<float>& grad, std::uint32_t round = 1,
                 const std::vector<float>& residual = {}) {
  const Spec parsed = spec_of(spec);
  return send(parsed, parsed.codec->best(this_machine()), grad, round, residual);
}

using draws::bell;

inline double squares(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * double{x};
  return sum;
}

}  // namespace tithe::dense
