// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that the local ranks of a verb share, beside the transport under test: a barrier, addresses, the first failure
// and the verb's numbers. Ranks map the same memory, whether they are threads or processes.
#include <atomic>
#include <cstdint>
#include <span>

#include "tithe/connect.h"
#include "tithe/status.h"

namespace tithe::cli {

inline constexpr int kMaxRanks = 256;

class RankBoard {
 public:
  // Room for n numbers. Child processes inherit the descriptor.
  static Result<RankBoard> create(int world, std::size_t n);
  static Result<RankBoard> join(int descriptor);
  RankBoard(RankBoard&& other) noexcept;
  RankBoard& operator=(RankBoard&&) = delete;
  ~RankBoard();

  int descriptor() const { return descriptor_; }
  int world() const;
  std::span<double> numbers();  // zeros at first; the verb defines their meaning

  std::atomic<std::uint32_t>& rounds_done();  // set by rank 0, including warm-up

  // Waits for all ranks. kCancelled as soon as a rank has failed, and in every later call.
  Status barrier();

  // Stores the first failure.
  void fail(const Status& why);
  Status failure() const;  // ok if none

  // Exchanges the ranks' addresses through this memory. kUnsupported for one of more than 16 KiB.
  AllGather all_gather(Rank me);

 private:
  struct Head;
  RankBoard(int descriptor, void* memory, std::size_t bytes)
      : descriptor_(descriptor), memory_(memory), bytes_(bytes) {}
  Head& head() const { return *static_cast<Head*>(memory_); }

  int descriptor_;
  void* memory_;
  std::size_t bytes_;
};

}  // namespace tithe::cli
