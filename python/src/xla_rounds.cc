// SPDX-License-Identifier: Apache-2.0
// Registered rounds are never freed, because compiled XLA programs refer to them by number. A round holds its session
// weakly.
#include "xla_rounds.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core.h"

namespace tithe::python {
namespace {

struct Round {
  std::weak_ptr<Session> session;
  std::vector<std::string> keys;
  std::vector<Tensor> bucket;  // its data pointers are set by each call
  pid_t pid = getpid();
  std::mutex turn;
};

std::mutex mutex;                                // guards all_rounds
std::vector<std::unique_ptr<Round>> all_rounds;  // by number

Status run(Round& round, void* const* values, const std::size_t* sizes, std::size_t tensors) {
  if (getpid() != round.pid)
    return {Code::kInvalid,
            "a session cannot be used after fork(): open a session in the process that uses it"};
  const std::shared_ptr<Session> session = round.session.lock();
  if (session == nullptr) return {Code::kInvalid, "this session is closed"};
  const std::lock_guard turn(round.turn);
  if (tensors != round.bucket.size())
    return {Code::kInvalid, fmt::format("got {} arrays, expected {}", tensors, round.bucket.size())};
  for (std::size_t i = 0; i < tensors; ++i) {
    if (sizes[i] != round.bucket[i].n)
      return {Code::kInvalid, fmt::format("'{}' has {} values, expected {}", round.bucket[i].key, sizes[i],
                                          round.bucket[i].n)};
    round.bucket[i].data = values[i];
  }
  const Result<Ticket> ticket = session->sync(round.bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session->wait(*ticket));
  return session->commit();
}

}  // namespace

std::int64_t new_round(const std::shared_ptr<Session>& session, std::vector<std::string> keys,
                       const std::vector<std::size_t>& sizes, const std::vector<std::string>& types) {
  if (keys.size() != sizes.size() || keys.size() != types.size())
    raise({Code::kInvalid, "a round needs one size and one type per key"});
  auto round = std::make_unique<Round>();
  round->session = session;
  round->keys = std::move(keys);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (types[i] != "float32" && types[i] != "float16")
      raise({Code::kInvalid, fmt::format("arrays of type {} are not supported", types[i])});
    round->bucket.push_back(
        {.key = round->keys[i], .n = sizes[i], .dtype = types[i] == "float32" ? DType::kF32 : DType::kF16});
  }
  const std::lock_guard lock(mutex);
  all_rounds.push_back(std::move(round));
  return static_cast<std::int64_t>(all_rounds.size()) - 1;
}

extern "C" int tithe_run_round(std::int64_t number, void* const* values, const std::size_t* sizes,
                               std::size_t tensors, char* what, std::size_t room) {
  Round* round = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (number >= 0 && static_cast<std::size_t>(number) < all_rounds.size())
      round = all_rounds[static_cast<std::size_t>(number)].get();
  }
  const Status s =
      round == nullptr ? Status(Code::kInvalid, "unknown round") : run(*round, values, sizes, tensors);
  const std::size_t n = std::min(s.what().size(), room - 1);
  std::memcpy(what, s.what().data(), n);
  what[n] = '\0';
  return static_cast<int>(s.code());
}

}  // namespace tithe::python
