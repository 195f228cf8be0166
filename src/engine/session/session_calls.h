// SPDX-License-Identifier: Apache-2.0
#pragma once
// SessionCalls are the calls of a Session that differ with a straggler proxy. The program calls either a SessionImpl or
// a StragglerProxy, which wraps a SessionImpl; open_session() decides it once.
#include <memory>
#include <string>
#include <vector>

#include "tithe/session.h"

namespace tithe::engine {

class SessionImpl;

class SessionCalls {
 public:
  SessionCalls() = default;
  virtual ~SessionCalls() = default;
  SessionCalls(const SessionCalls&) = delete;
  SessionCalls& operator=(const SessionCalls&) = delete;

  // As in Session.
  virtual Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) = 0;
  virtual Status wait(Ticket ticket) = 0;
  virtual Result<bool> poll(Ticket ticket) = 0;
  virtual Status commit() = 0;
  virtual std::uint64_t round() const = 0;
  virtual bool last_round_dropped() const = 0;
  virtual SessionStats stats() const = 0;
  virtual Status evaluated(double loss) = 0;
  virtual Status learning_rate(double rate) = 0;
  // residuals=false: Session::common_state().
  virtual Result<std::vector<std::uint8_t>> state(bool residuals) = 0;
  virtual Status restore(ByteView bytes) = 0;
  virtual Status restore(std::span<const ByteView> states, Lost lost) = 0;
  virtual Status may_reform(Rank rank, int world, const std::vector<std::string>& members,
                            std::uint64_t epoch) const = 0;
  // The start of reform(): from now on no thread but the program's begins a round.
  virtual Status begin_reform() = 0;
  // The session itself, with all other calls.
  virtual SessionImpl& impl() = 0;
};

Result<std::unique_ptr<SessionCalls>> open_session(std::unique_ptr<Transport> transport,
                                                   const SessionOptions& options);

}  // namespace tithe::engine
