// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sessions' rounds with a bucket of all types, from the host's memory or from a GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "engine/program/convert.h"
#include "support/gpu/gpu_here.h"
#include "support/gpu/gpu_tensors.h"
#include "support/ranks.h"

namespace tithe::testing {

// A bucket of all types; its second tensor is split into parts.
struct Bucket {
  std::vector<float> small, large, rest;
  std::vector<std::uint16_t> half, brain;

  Bucket(Rank rank, int round) {
    unsigned draw = static_cast<unsigned>(1 + rank + 100 * round);
    const auto next = [&] {
      draw = draw * 1664525U + 1013904223U;
      return (static_cast<float>(draw >> 8) * 0x1p-24F - 0.5F) * 3.0F;
    };
    for (auto [of, n] : {std::pair{&small, 700}, {&large, 9000}, {&rest, 1300}})
      for (int i = 0; i < n; ++i) of->push_back(next());
    for (int i = 0; i < 900; ++i) half.push_back(engine::to_fp16(next()));
    for (int i = 0; i < 800; ++i) brain.push_back(engine::to_bf16(next()));
  }
  std::vector<Tensor> tensors() {
    return {{.key = "small", .data = small.data(), .n = small.size()},
            {.key = "half", .data = half.data(), .n = half.size(), .dtype = DType::kF16},
            {.key = "large", .data = large.data(), .n = large.size()},
            {.key = "brain", .data = brain.data(), .n = brain.size(), .dtype = DType::kBF16},
            {.key = "rest", .data = rest.data(), .n = rest.size()}};
  }
  friend bool operator==(const Bucket& a, const Bucket& b) {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), 4 * x.size()) == 0;
    };
    return same(a.small, b.small) && same(a.large, b.large) && same(a.rest, b.rest) && a.half == b.half &&
           a.brain == b.brain;
  }
};

// `there`: by way of a GPU.
inline Status round(Session& session, Bucket& bucket, bool there, bool apart = true) {
  const std::vector<Tensor> here = bucket.tensors();
  if (!there) {
    const Result<Ticket> ticket = session.sync(here);
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY(session.wait(*ticket));
    return session.commit();
  }
  GpuTensors gpu;
  const std::vector<Tensor> on_gpu = gpu.take(here, apart);
  const Result<Ticket> ticket = session.sync(on_gpu, gpu.origin());
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  const Status status = session.commit();
  if (status.ok()) gpu.read(on_gpu, here);
  return status;
}

class OnGpus : public GpuTest {
 protected:
  static SessionOptions options(const std::string& codec) {
    return {.codec = codec,
            .strategy = "ring",
            .lanes = 0,
            .min_values = 0,
            .part_values = 4000,
            .timeout = std::chrono::seconds(900),
            .seed = 5,
            .device = "on,min_values=1"};
  }
};

}  // namespace tithe::testing
