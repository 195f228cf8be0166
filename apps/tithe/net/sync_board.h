// SPDX-License-Identifier: Apache-2.0
#pragma once
// The board that the ranks of `tithe bench sync` and `tithe replay` share beside the transport that is measured: a
// barrier, addresses and results. One block of memory, mapped by all, whether ranks are threads or processes.
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tithe/connect.h"
#include "tithe/status.h"

namespace tithe::cli {

inline constexpr int kMostRanks = 256;

class SyncBoard {
 public:
  struct RankResult {
    double seconds = 0;            // of the round just done
    std::uint64_t bytes_sent = 0;  // likewise
    std::uint64_t result_hash = 0;
    double imbalance = 0;  // largest of the slice that this rank has checked
    double largest = 0;    // gradient + residual before, by magnitude
    double apart = 0;      // largest difference of a value from rank 0's, where checksums cover headers
    std::uint64_t wire_bytes = 0;  // of the round just done, as the link of its host counted; 0 without one
  };

  // Room for n numbers. The descriptor can be inherited.
  static Result<SyncBoard> create(int world, std::size_t n);
  static Result<SyncBoard> join(int descriptor);
  SyncBoard(SyncBoard&& other) noexcept;
  SyncBoard& operator=(SyncBoard&&) = delete;
  ~SyncBoard();

  int descriptor() const { return descriptor_; }
  int world() const;
  RankResult& of(Rank rank);
  std::span<double> numbers();  // zeros at first; what the verb wants to add up

  std::atomic<std::uint32_t>& rounds_done();  // set by rank 0, warm-up among them

  // Waits for all ranks; false once a rank has failed, and ever after.
  bool barrier();

  // The first failure is kept; everybody else's barrier() returns false.
  void fail(const Status& why);
  Status failure() const;  // ok if none

  // Addresses of the ranks, over this memory. Blobs of more than 16 KiB are refused.
  AllGather all_gather(Rank me);

 private:
  struct Head;
  SyncBoard(int descriptor, void* memory, std::size_t bytes)
      : descriptor_(descriptor), memory_(memory), bytes_(bytes) {}
  Head& head() const { return *static_cast<Head*>(memory_); }

  int descriptor_;
  void* memory_;
  std::size_t bytes_;
};

}  // namespace tithe::cli
