// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state and the parts of one rank's runner, without its threads.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "engine/run/control_channel.h"
#include "engine/run/message_io.h"
#include "support/forwarding_transport.h"
#include "tithe/connect.h"

namespace tithe::testing {

// A transport with a clock that the test sets, and a count of wake().
class ManualClock final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void wake() override { ++wakes; }
  engine::Instant now() const override { return time; }
  engine::Instant time{std::chrono::hours(1)};
  int wakes = 0;
};

struct RunnerParts {
  explicit RunnerParts(std::unique_ptr<Transport> inner)
      : clock(new ManualClock(std::move(inner))),
        state{.member = {.me = clock->rank(), .world = clock->world()},
              .limits = {.timeout = std::chrono::seconds(1),
                         .patience = std::chrono::seconds(60),
                         .interrupted = nullptr},
              .transport = std::unique_ptr<Transport>(clock)} {
    control.listen();
  }
  // Posts the messages that are due, and handles the completed operations.
  void turn() {
    engine::RunnerLock::Hold hold(state.lock);
    control.send_cards(hold);
    control.send_pending(hold);
    while (io.has_ready()) io.post_batch(hold);
    for (const Completion& done : io.poll(hold, {}))
      if ((done.op >> 63) != 0)
        control.complete(done);
      else if (io.complete(done, clock->time))
        ++finished;
  }

  ManualClock* clock;
  engine::RunnerState state;
  engine::LayoutAgreement agreement{state};
  engine::FailureDetector failures{state};
  engine::MessageIo io{state, failures};
  engine::ControlChannel control{state, failures, agreement};
  int finished = 0;  // steps of messages
};

// The parts of all ranks of a world of threads.
class RunnerPartsOf {
 public:
  explicit RunnerPartsOf(int world) {
    for (auto& transport : open_loop(world))
      ranks_.push_back(std::make_unique<RunnerParts>(std::move(transport)));
  }
  RunnerParts& operator[](Rank r) { return *ranks_[static_cast<std::size_t>(r)]; }
  void close(Rank r) { ranks_[static_cast<std::size_t>(r)].reset(); }
  void turn() {
    for (int k = 0; k < 4; ++k)
      for (auto& rank : ranks_)
        if (rank != nullptr) rank->turn();
  }

 private:
  std::vector<std::unique_ptr<RunnerParts>> ranks_;
};

}  // namespace tithe::testing
