// SPDX-License-Identifier: Apache-2.0
#pragma once
// The board of the ranks of `tithe profile`: an array of numbers, in which each rank writes its own entries, and a
// barrier. On one machine the board is shared memory. Between machines it is messages to and from rank 0, over a second
// transport, because the measured transport may fail.
#include <memory>
#include <span>
#include <vector>

#include "rank_board.h"
#include "tithe/connect.h"

namespace tithe::cli {

class ProfileBoard {
 public:
  ProfileBoard() = default;
  virtual ~ProfileBoard() = default;
  ProfileBoard(const ProfileBoard&) = delete;
  ProfileBoard& operator=(const ProfileBoard&) = delete;

  virtual int world() const = 0;
  // Waits for all ranks. Returns false if a rank has failed, and from then on.
  virtual bool barrier() = 0;
  // The same; afterwards each rank can read the entries of all ranks.
  virtual bool share() = 0;
  virtual std::span<double> numbers() = 0;  // zeros at first
  virtual void codec_done() = 0;            // by rank 0, for the line of progress
};

class SharedProfileBoard : public ProfileBoard {
 public:
  explicit SharedProfileBoard(RankBoard& board) : board_(board) {}
  int world() const override { return board_.world(); }
  bool barrier() override { return board_.barrier().ok(); }
  bool share() override { return board_.barrier().ok(); }
  std::span<double> numbers() override { return board_.numbers(); }
  void codec_done() override { ++board_.rounds_done(); }

 private:
  RankBoard& board_;
};

class DistantProfileBoard : public ProfileBoard {
 public:
  // `codecs`: of the line of progress.
  DistantProfileBoard(std::unique_ptr<Transport> transport, std::size_t numbers, std::size_t codecs);
  ~DistantProfileBoard() override;
  int world() const override { return transport_->world(); }
  bool barrier() override { return gather(false); }
  bool share() override { return gather(true); }
  std::span<double> numbers() override { return numbers_; }
  void codec_done() override;

  // Reports a failure, which the other ranks receive at their next barrier. The first failure counts.
  void fail(const Status& why);
  const Status& failure() const { return failure_; }

 private:
  bool gather(bool with_numbers);
  Status collect(bool with_numbers);
  Status ask(bool with_numbers);
  Status send(Rank peer, ByteView message);
  Result<std::size_t> recv(Rank peer);
  Status wait(OpId op, Rank peer, std::size_t* bytes);
  std::vector<std::uint8_t> message(bool with_numbers) const;
  void take(ByteView theirs, std::span<double> into) const;

  std::unique_ptr<Transport> transport_;
  std::vector<double> numbers_, before_;  // before: the numbers after the last barrier
  std::vector<std::uint8_t> in_;
  const std::size_t codecs_;
  std::size_t done_ = 0;
  OpId last_ = 0;
  Status failure_;
};

}  // namespace tithe::cli
