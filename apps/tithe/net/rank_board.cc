// SPDX-License-Identifier: Apache-2.0
#include "rank_board.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

namespace tithe::cli {
namespace {

constexpr std::size_t kMaxBlob = 16 * 1024;
constexpr std::size_t kPage = 4096;

Status io_error(std::string_view what) {
  return {Code::kIo, fmt::format("shared memory of the ranks: {}: {}", what, std::strerror(errno))};
}

}  // namespace

struct RankBoard::Head {
  int world;
  std::size_t n;
  std::atomic<std::uint32_t> turn;  // completed barriers; a futex between processes
  std::atomic<std::uint32_t> rounds_done;
  std::atomic<int> here;    // ranks that have reached the current barrier
  std::atomic<int> failed;  // 0 no, 1 being written, 2 yes
  int code;
  int peer;
  char what[1024];
  std::size_t blob_bytes[kMaxRanks];
  std::uint8_t blob[kMaxRanks][kMaxBlob];

  static std::size_t bytes(std::size_t n) { return first_value() + n * sizeof(double); }
  static std::size_t first_value() { return (sizeof(Head) + kPage - 1) / kPage * kPage; }
};

Result<RankBoard> RankBoard::create(int world, std::size_t n) {
  const int descriptor = memfd_create("tithe-ranks", 0);
  if (descriptor < 0) return io_error("memfd_create");
  if (ftruncate(descriptor, static_cast<off_t>(Head::bytes(n))) != 0) {
    const Status s = io_error("ftruncate");
    close(descriptor);
    return s;
  }
  Result<RankBoard> board = join(descriptor);
  if (!board.ok()) return board.status();
  Head* head = new (board->memory_) Head();
  head->world = world;
  head->n = n;
  return board;
}

Result<RankBoard> RankBoard::join(int descriptor) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0 || static_cast<std::size_t>(file.st_size) < Head::bytes(0))
    return io_error("not readable");
  const auto bytes = static_cast<std::size_t>(file.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return io_error("mmap");
  return RankBoard(descriptor, memory, bytes);
}

RankBoard::RankBoard(RankBoard&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

RankBoard::~RankBoard() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

int RankBoard::world() const { return head().world; }

std::span<double> RankBoard::numbers() {
  return {reinterpret_cast<double*>(static_cast<std::uint8_t*>(memory_) + Head::first_value()), head().n};
}

std::atomic<std::uint32_t>& RankBoard::rounds_done() { return head().rounds_done; }

Status RankBoard::barrier() {
  Head& h = head();
  static_assert(sizeof h.turn == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
  auto* word = reinterpret_cast<std::uint32_t*>(&h.turn);
  const std::uint32_t turn = h.turn.load();
  if (h.here.fetch_add(1) + 1 == h.world) {
    h.here = 0;
    h.turn = turn + 1;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  while (h.turn.load() == turn && h.failed.load() == 0) {
    const timespec most{.tv_sec = 0, .tv_nsec = 100'000'000};  // fail() wakes no rank, so each looks again
    syscall(SYS_futex, word, FUTEX_WAIT, turn, &most, nullptr, 0);
  }
  return h.failed.load() == 0 ? Status{} : Status(Code::kCancelled, "another rank failed");
}

void RankBoard::fail(const Status& why) {
  Head& h = head();
  int none = 0;
  if (!h.failed.compare_exchange_strong(none, 1)) return;
  h.code = static_cast<int>(why.code());
  h.peer = why.peer();
  why.what().copy(h.what, sizeof h.what - 1);
  h.failed = 2;
}

Status RankBoard::failure() const {
  const Head& h = head();
  if (h.failed.load() != 2) return {};
  return {static_cast<Code>(h.code), h.what, h.peer};
}

AllGather RankBoard::all_gather(Rank me) {
  return [this, me](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    Head& h = head();
    if (mine.size() > kMaxBlob)
      return Status(Code::kUnsupported, fmt::format("an address of {} bytes", mine.size()));
    h.blob_bytes[me] = mine.size();
    std::copy(mine.begin(), mine.end(), h.blob[me]);
    TITHE_TRY(barrier());
    std::vector<std::vector<std::uint8_t>> all;
    for (Rank r = 0; r < h.world; ++r) all.emplace_back(h.blob[r], h.blob[r] + h.blob_bytes[r]);
    TITHE_TRY(barrier());
    return all;
  };
}

}  // namespace tithe::cli
