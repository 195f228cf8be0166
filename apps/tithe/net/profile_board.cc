// SPDX-License-Identifier: Apache-2.0
#include "profile_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/bytes.h"
#include "progress.h"

namespace tithe::cli {
namespace {

using std::chrono::milliseconds;

constexpr Channel kBoard = 1;
constexpr std::chrono::minutes kPatience{10};  // for a rank that measures
constexpr std::size_t kHead = 8, kMaxText = 1024;

// A message: u32 code of a status | i32 its peer | numbers, or the status's text.
std::vector<std::uint8_t> failed(const Status& why) {
  std::vector<std::uint8_t> out(kHead);
  wire::put(&out[0], static_cast<std::uint32_t>(why.code()));
  wire::put(&out[4], static_cast<std::int32_t>(why.peer()));
  const std::string text = why.what().substr(0, kMaxText);
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

Status status_of(ByteView message) {
  if (message.size() < kHead) return {Code::kCorrupt, "a message of the profile's board is too short"};
  const auto code = static_cast<Code>(wire::get<std::uint32_t>(message.data()));
  if (code == Code::kOk) return {};
  const ByteView text = message.subspan(kHead);
  return {code, std::string(text.begin(), text.end()), wire::get<std::int32_t>(message.data() + 4)};
}

}  // namespace

DistantProfileBoard::DistantProfileBoard(std::unique_ptr<Transport> transport, std::size_t numbers,
                                         std::size_t codecs)
    : transport_(std::move(transport)),
      numbers_(numbers),
      before_(numbers),
      in_(kHead + std::max(kMaxText, numbers * sizeof(double))),
      codecs_(codecs) {}

DistantProfileBoard::~DistantProfileBoard() = default;

void DistantProfileBoard::codec_done() { progress("codecs", ++done_, codecs_); }

bool DistantProfileBoard::gather(bool with_numbers) {
  if (!failure_.ok()) return false;
  if (world() == 1) return true;
  const bool first = transport_->rank() == 0;
  failure_ = first ? collect(with_numbers) : ask(with_numbers);
  if (first && !failure_.ok()) fail(failure_);
  if (with_numbers) before_ = numbers_;
  return failure_.ok();
}

std::vector<std::uint8_t> DistantProfileBoard::message(bool with_numbers) const {
  std::vector<std::uint8_t> out(kHead);
  if (!with_numbers) return out;
  out.resize(kHead + numbers_.size() * sizeof(double));
  std::memcpy(&out[kHead], numbers_.data(), numbers_.size() * sizeof(double));
  return out;
}

// Each rank writes its own entries only, so a changed number is this rank's.
void DistantProfileBoard::take(ByteView theirs, std::span<double> into) const {
  const std::size_t n = std::min(into.size(), (theirs.size() - kHead) / sizeof(double));
  for (std::size_t k = 0; k < n; ++k) {
    double number = 0;
    std::memcpy(&number, &theirs[kHead + k * sizeof(double)], sizeof number);
    if (std::bit_cast<std::uint64_t>(number) != std::bit_cast<std::uint64_t>(before_[k])) into[k] = number;
  }
}

// Rank 0 receives the numbers of all ranks and answers each rank.
Status DistantProfileBoard::collect(bool with_numbers) {
  for (Rank r = 1; r < world(); ++r) {
    const Result<std::size_t> bytes = recv(r);
    if (!bytes.ok()) return bytes.status();
    const ByteView theirs = ByteView(in_).first(*bytes);
    TITHE_TRY(status_of(theirs));
    if (with_numbers) take(theirs, numbers_);
  }
  const std::vector<std::uint8_t> all = message(with_numbers);
  for (Rank r = 1; r < world(); ++r) TITHE_TRY(send(r, all));
  return {};
}

Status DistantProfileBoard::ask(bool with_numbers) {
  // If rank 0 has left, it may have sent the reason before.
  const Status sent = send(0, message(with_numbers));
  const Result<std::size_t> bytes = recv(0);
  if (!bytes.ok()) return sent.ok() ? bytes.status() : sent;
  const ByteView theirs = ByteView(in_).first(*bytes);
  TITHE_TRY(status_of(theirs));
  if (with_numbers) take(theirs, numbers_);
  return {};
}

void DistantProfileBoard::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
  const std::vector<std::uint8_t> message = failed(failure_);
  const bool first = transport_->rank() == 0;
  for (Rank r = first ? 1 : 0; r < (first ? world() : 1); ++r)
    if (transport_->peer_status(r).ok()) static_cast<void>(send(r, message));
}

Status DistantProfileBoard::send(Rank peer, ByteView message) {
  TITHE_TRY(transport_->send(peer, kBoard, message, ++last_));
  return wait(last_, peer, nullptr);
}

Result<std::size_t> DistantProfileBoard::recv(Rank peer) {
  TITHE_TRY(transport_->recv(peer, kBoard, in_, ++last_));
  std::size_t bytes = 0;
  TITHE_TRY(wait(last_, peer, &bytes));
  return bytes;
}

Status DistantProfileBoard::wait(OpId op, Rank peer, std::size_t* bytes) {
  const auto until = transport_->now() + kPatience;
  for (bool withdrawn = false;;) {
    Completion done[4];
    const std::size_t n = transport_->poll(done, milliseconds(100));
    for (std::size_t k = 0; k < n; ++k) {
      if (done[k].op != op) continue;
      if (bytes != nullptr) *bytes = done[k].bytes;
      const Status& s = done[k].status;
      if (withdrawn && !s.ok())
        return {Code::kTimeout,
                fmt::format("rank {} did not connect within {} minutes", peer, kPatience.count()), peer};
      return s.ok() ? s : Status(s.code(), fmt::format("rank {}: {}", peer, s.what()), peer);
    }
    if (withdrawn || transport_->now() < until) continue;
    transport_->cancel(op);
    withdrawn = true;
  }
}

}  // namespace tithe::cli
