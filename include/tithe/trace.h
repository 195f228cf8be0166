// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trace records a session's events (docs/guide/trace.md).
//
//   apart     the time that a step waited for a lane, ready_ns to begin_ns, is separate from the time that it ran,
//             begin_ns to end_ns
//   frame     a send begins when the frame is handed to the transport and ends when the transport has completed it; a
//             recv begins when it is posted, long before there is anything to receive, and ends when the frame is there
//   named     key and codec are those of the part, a bucket's keys are those that sync() was given
//   steady    once a layout is known its rounds allocate nothing, traced or not
#include <cstdint>
#include <string_view>

namespace tithe {

struct TraceEvent {
  // A step: load, own, encode, send, recv, check, merge, store. A bucket, from its hand-over to its last step:
  // bucket. A call: wait, commit. A caller's own mark, such as backward.
  std::string_view op = {};
  std::uint32_t round = 0;
  std::uint32_t bucket = 0;  // number of its layout
  std::uint32_t part = 0;    // over all layouts, as in a frame's header
  int chunk = 0, phase = 0;
  int peer = -1;
  int lane = 0;  // 0 is the communication lane, those of computing count from 1; -1: a caller's thread
  // Times of the transport's clock, which is the steady one but in a simulation. For a part's step: when all that it
  // waited for had run; when it began; when it was over.
  std::int64_t ready_ns = 0, begin_ns = 0, end_ns = 0;
  std::uint64_t bytes = 0;  // of the frame that was made, sent or received; of a bucket's gradients
  // As long as the session lives: the part's (or bucket's) first tensor, and the codec's name.
  std::string_view key = {}, codec = {};
};

}  // namespace tithe
