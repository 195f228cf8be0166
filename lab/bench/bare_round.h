// SPDX-License-Identifier: Apache-2.0
#pragma once
// A round without an engine: one thread per rank executes the program of each bucket step by step, calls the same
// codec and checksum functions as an engine, and passes the same messages to the transport. Its cost does not include
// the engine.
//
// Steps do not wait for their inputs, so payloads have other contents than in a real round. They have the same sizes if
// the codec has a fixed size.
#include <memory>
#include <span>
#include <vector>

#include "engine/program/bucket.h"
#include "engine/program/program.h"
#include "tithe/seam/transport.h"

namespace tithe::bench {

class BareRank {
 public:
  // One plan per bucket, the same on all ranks.
  BareRank(std::unique_ptr<Transport> transport, std::span<const Plan> plans);
  Status round();

 private:
  struct Bucket {
    Plan plan;
    engine::Program program;
    std::uint32_t first_part = 0;
    std::vector<std::uint8_t> memory;
    std::vector<float> values;
    std::vector<std::uint8_t> scratch;
    std::vector<std::size_t> bytes;  // of each slot's frame
  };
  Bytes frame(Bucket& b, int slot) {
    const auto s = static_cast<std::size_t>(slot);
    return Bytes(b.memory).subspan(b.program.slots[s].offset, b.bytes[s]);
  }
  std::span<float> values(Bucket& b, const engine::Step& step);
  Status make(Bucket& b, const engine::Step& step, bool encodes, bool seals);
  Status post(Bucket& b, const engine::Step& step);
  Status use(Bucket& b, const engine::Step& step);
  Status drain();

  std::unique_ptr<Transport> transport_;
  std::vector<Bucket> buckets_;
  std::size_t in_flight_ = 0;
  std::vector<ByteView> views_;
};

}  // namespace tithe::bench
