// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws with some ranks' tensors on a GPU: the cases, and a round.
#include "support/gpu/gpu_tensors.h"
#include "support/law_cases.h"

namespace tithe::testing {

// As synchronise(), from a GPU and back.
inline Status synchronise_there(Session& session, std::span<const std::size_t> sizes, Values& values) {
  std::vector<std::unique_ptr<GpuTensors>> gpus;
  std::vector<std::vector<Tensor>> buckets;
  std::vector<std::string> keys;
  for (const std::size_t n : sizes) keys.push_back(key_of(n));
  std::vector<Ticket> tickets;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const Tensor t{.key = keys[k], .data = values[k].data(), .n = sizes[k]};
    gpus.push_back(std::make_unique<GpuTensors>());
    buckets.push_back(gpus.back()->take({&t, 1}));
    const Result<Ticket> ticket = session.sync(buckets.back(), gpus.back()->origin());
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket t : tickets) TITHE_TRY(session.wait(t));
  const Status status = session.commit();
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const Tensor t{.key = keys[k], .data = values[k].data(), .n = sizes[k]};
    gpus[k]->read(buckets[k], {&t, 1});
  }
  return status;
}

// Codecs with and without kernels, each with one strategy (two with TITHE_TEST_FULL=1); worlds alternate.
inline std::vector<Combination> gpu_combinations() {
  const std::vector<std::string> specs = {"onebit",          "qsgd:bits=4", "tbq",        "fp8",
                                          "topk:ratio=0.05", "mixed",       "eden:bits=3"};
  const int worlds[] = {2, 3, 4, 1};
  const auto strategies = all_strategies();
  std::vector<Combination> all;
  for (std::size_t k = 0; k < specs.size(); ++k)
    for (const std::size_t strategy : harness::full_products() ? std::vector{k, k + 3} : std::vector{k}) {
      LawCase law = specs[k] == "mixed"
                        ? mixed_case()
                        : LawCase{specs[k].substr(0, specs[k].find(':')), *parse_spec(specs[k])};
      all.push_back({std::move(law),
                     strategies[strategy % strategies.size()],
                     "loop",
                     worlds[all.size() % 4],
                     false,
                     {},
                     true});
    }
  return all;
}

}  // namespace tithe::testing
