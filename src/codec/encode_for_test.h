// SPDX-License-Identifier: Apache-2.0
#pragma once
// One encode with all its buffers, for the unit tests of the sparsifiers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/scratch_for_test.h"
#include "codec/sparse.h"
#include "tithe/spec.h"

namespace tithe::sparse {

struct Sent {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::vector<float> left;
  bool finite = true;
  std::vector<std::uint8_t> payload;
  friend bool operator==(const Sent&, const Sent&) = default;
};

inline Sent encode(const Impl& impl, const Codec& codec, const Call& proto, const std::vector<float>& grad,
                   const std::vector<float>& residual) {
  Call call = proto;
  const std::size_t n = grad.size();
  const ScratchForTest scratch(codec, call.settings, n);
  call.scratch = scratch;
  Sent sent;
  sent.left = residual;
  sent.payload.resize(codec.phases[0].bound(call.settings, n));
  const Carry carry{grad.data(), sent.left.data(), sent.left.data(), n};
  Result<Encoded> done = impl.encode(call, carry, sent.payload);
  EXPECT_TRUE(done.ok()) << done.status().what();
  if (!done.ok()) return sent;
  sent.finite = done->finite;
  sent.payload.resize(done->bytes);
  const Status valid = codec.phases[0].check(call.settings, n, sent.payload);
  EXPECT_TRUE(valid.ok()) << valid.what();
  const Pairs pairs(sent.payload);
  for (std::size_t j = 0; j < pairs.count(); ++j) {
    sent.index.push_back(pairs.index(j));
    sent.value.push_back(pairs.value(j));
  }
  return sent;
}

// By every impl, which must agree.
inline Sent encode_all(const Codec& codec, const Call& call, const std::vector<float>& grad,
                       std::vector<float> residual = {}) {
  residual.resize(grad.size());
  const Sent want = encode(codec.reference(), codec, call, grad, residual);
  for (const Impl& impl : codec.impls)
    EXPECT_TRUE(encode(impl, codec, call, grad, residual) == want) << impl.name;
  return want;
}

inline Call call_of(const std::string& spec) {
  Result<Spec> parsed = parse_spec(spec);
  EXPECT_TRUE(parsed.ok()) << parsed.status().what();
  Call call;
  if (parsed.ok()) call.settings = parsed->settings;
  return call;
}

}  // namespace tithe::sparse
