// SPDX-License-Identifier: Apache-2.0
// Meeting over TCP: rank 0 collects a blob from each rank and answers all of them.
//
// To rank 0     u32 magic | u32 version | u32 world | u32 rank | u32 bytes | blob
// From rank 0   u32 magic | u32 version | u32 status code | u32 peer + 1 | u32 items | items x (u32 bytes,
// item)
//               status ok: the blobs in rank order; else one item, the text of what went wrong
// A connection that says anything else is closed and forgotten. Lengths are held against fixed caps before
// anything is allocated.
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <list>
#include <thread>

#include "base/bytes.h"
#include "transport/meet/meeting.h"
#include "transport/meet/socket.h"

namespace tithe::meeting {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x544d5454;  // "TTMT" in file order
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 20;
// Rank 0's answer about who is missing may come this much later than this rank's own deadline.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::milliseconds kPause{50};

void append(Blob& out, std::uint32_t v) {
  out.resize(out.size() + sizeof v);
  wire::put(&out[out.size() - sizeof v], v);
}

Blob header_of(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  Blob out;
  for (const std::uint32_t v : {kMagic, kVersion, a, b, c}) append(out, v);
  return out;
}

Blob answer_of(const Status& status, std::span<const Blob> items) {
  Blob out =
      header_of(static_cast<std::uint32_t>(status.code()), static_cast<std::uint32_t>(status.peer() + 1),
                static_cast<std::uint32_t>(items.size()));
  for (const Blob& item : items) {
    append(out, static_cast<std::uint32_t>(item.size()));
    out.insert(out.end(), item.begin(), item.end());
  }
  return out;
}

// One connection on rank 0, while its message arrives.
struct Visitor {
  Socket socket;
  Blob bytes = Blob(kHeaderBytes);
  std::size_t have = 0;
  bool ours = false;  // its first bytes were those of a rank
  Rank rank = -1;     // once the header has been read and agrees
  bool whole() const { return rank >= 0 && have == bytes.size(); }
};

class Host {
 public:
  Host(const Launch& launch, ByteView mine)
      : launch_(launch), blobs_(static_cast<std::size_t>(launch.world)) {
    blobs_[0].assign(mine.begin(), mine.end());
  }

  Result<std::vector<Blob>> run() {
    const auto deadline = Clock::now() + launch_.timeout;
    int why = 0;
    Result<Socket> listener = listen_on(launch_.port, &why);
    if (!listener.ok()) {
      if (why != EADDRINUSE) return listener.status();
      return Status(
          Code::kIo,
          fmt::format("{} (under torchrun, torch's own store holds MASTER_PORT: exchange addresses through "
                      "torch as tithe.torch does, or give tithe another port)",
                      listener.status().what()));
    }
    Status status;
    while (status.ok() && !missing().empty()) {
      if (Clock::now() >= deadline)
        status = nobody_from(missing(), launch_);
      else
        status = step(*listener, deadline);
    }
    const std::string& what = status.what();
    const Blob text(what.begin(), what.end());
    const Blob answer = answer_of(status, status.ok() ? std::span<const Blob>(blobs_) : std::span(&text, 1));
    for (const Visitor& v : visitors_) {
      if (!v.ours) continue;
      const Status sent = send_all(v.socket, answer, Clock::now() + kGrace);
      if (!sent.ok() && status.ok())
        status = {Code::kPeerLost, fmt::format("rank {} went away while ranks met: {}", v.rank, sent.what()),
                  v.rank};
    }
    if (!status.ok()) return status;
    return std::move(blobs_);
  }

 private:
  std::vector<Rank> missing() const {
    std::vector<bool> here(blobs_.size());
    here[0] = true;
    for (const Visitor& v : visitors_)
      if (v.whole()) here[static_cast<std::size_t>(v.rank)] = true;
    std::vector<Rank> out;
    for (std::size_t r = 0; r < here.size(); ++r)
      if (!here[r]) out.push_back(static_cast<Rank>(r));
    return out;
  }

  // Waits for something to happen and takes it in. Not ok: a rank of another version or world.
  Status step(const Socket& listener, Deadline deadline) {
    std::vector<pollfd> fds{{.fd = listener.fd(), .events = POLLIN, .revents = 0}};
    for (const Visitor& v : visitors_) fds.push_back({.fd = v.socket.fd(), .events = POLLIN, .revents = 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 1000)));
    for (auto v = visitors_.begin(); v != visitors_.end();) {
      bool stays = true;
      TITHE_TRY(read(*v, &stays));
      v = stays ? std::next(v) : visitors_.erase(v);
    }
    if (Socket s = accept_from(listener); s.open()) visitors_.push_back({.socket = std::move(s)});
    return {};
  }

  Status read(Visitor& v, bool* stays) {
    for (;;) {
      if (v.whole()) {  // nothing more is due: readable means gone, and its rank must come again
        std::uint8_t more;
        *stays = recv_some(v.socket, {&more, 1}) == 0;
        return {};
      }
      const std::ptrdiff_t n = recv_some(v.socket, std::span(v.bytes).subspan(v.have));
      if (n <= 0) {
        *stays = n == 0;
        return {};
      }
      v.have += static_cast<std::size_t>(n);
      if (v.rank < 0 && v.have == kHeaderBytes) {
        const auto at = [&](std::size_t i) { return wire::get<std::uint32_t>(&v.bytes[4 * i]); };
        *stays = at(0) == kMagic && at(4) <= kMaxBlobBytes && at(3) < (1U << 31);
        if (!*stays) return {};
        v.ours = true;
        const auto rank = static_cast<Rank>(at(3));
        if (at(1) != kVersion)
          return {Code::kMismatch,
                  fmt::format("rank {} meets by version {}, rank 0 by {}", rank, at(1), kVersion), rank};
        if (at(2) != static_cast<std::uint32_t>(launch_.world))
          return {Code::kMismatch,
                  fmt::format("rank {} was started with world size {}, rank 0 with {}", rank, at(2),
                              launch_.world),
                  rank};
        if (rank < 1 || rank >= launch_.world)
          return {Code::kMismatch, fmt::format("a process calls itself rank {} of {}", rank, launch_.world),
                  rank};
        v.rank = rank;
        v.bytes.resize(kHeaderBytes + at(4));
      }
      if (v.whole()) {
        for (const Visitor& other : visitors_)
          if (&other != &v && other.whole() && other.rank == v.rank)
            return {Code::kMismatch, fmt::format("two processes call themselves rank {}", v.rank), v.rank};
        blobs_[static_cast<std::size_t>(v.rank)].assign(v.bytes.begin() + kHeaderBytes, v.bytes.end());
      }
    }
  }

  const Launch& launch_;
  std::vector<Blob> blobs_;
  std::list<Visitor> visitors_;
};

Result<std::vector<Blob>> read_answer(const Socket& socket, const Launch& launch, Deadline deadline) {
  const Status strange(
      Code::kMismatch,
      fmt::format("what answers at {}:{} is not tithe's rank 0 (under torchrun, torch's own store "
                  "holds MASTER_PORT: exchange addresses through torch as tithe.torch does)",
                  launch.host, launch.port),
      0);
  Blob header(kHeaderBytes);
  TITHE_TRY(recv_all(socket, header, deadline));
  const auto at = [&](std::size_t i) { return wire::get<std::uint32_t>(&header[4 * i]); };
  const auto code = static_cast<Code>(at(2));
  const std::size_t items = code == Code::kOk ? static_cast<std::size_t>(launch.world) : 1;
  if (at(0) != kMagic || at(1) != kVersion || at(2) > static_cast<std::uint32_t>(Code::kCancelled) ||
      at(4) != items)
    return strange;
  std::vector<Blob> out(items);
  for (Blob& item : out) {
    std::uint8_t size[4];
    TITHE_TRY(recv_all(socket, size, deadline));
    const auto bytes = wire::get<std::uint32_t>(size);
    if (bytes > kMaxBlobBytes) return strange;
    item.resize(bytes);
    TITHE_TRY(recv_all(socket, item, deadline));
  }
  if (code == Code::kOk) return out;
  return Status(code, std::string(out[0].begin(), out[0].end()), static_cast<int>(at(3)) - 1);
}

Result<std::vector<Blob>> visit(const Launch& launch, ByteView mine) {
  const auto deadline = Clock::now() + launch.timeout;
  Blob message = header_of(static_cast<std::uint32_t>(launch.world), static_cast<std::uint32_t>(launch.rank),
                           static_cast<std::uint32_t>(mine.size()));
  message.insert(message.end(), mine.begin(), mine.end());
  // Until it answers, rank 0 may not have started yet, or someone else may have stood in its place.
  Status last;
  while (Clock::now() < deadline) {
    Result<Socket> socket = connect_to(launch.host, launch.port, deadline);
    last = socket.status();
    if (last.ok()) last = send_all(*socket, message, deadline);
    if (last.ok()) {
      Result<std::vector<Blob>> all = read_answer(*socket, launch, deadline + kGrace);
      if (all.ok()) return all;
      last = all.status();
      if (last.code() != Code::kIo) break;
    }
    std::this_thread::sleep_for(kPause);
  }
  if (last.code() != Code::kIo && last.peer() != Status::kNoPeer) return last;
  const Status timeout = nobody_from({0}, launch);
  return Status(timeout.code(), timeout.what() + (last.ok() ? "" : fmt::format(" ({})", last.what())), 0);
}

}  // namespace

Result<std::vector<Blob>> over_tcp(const Launch& launch, ByteView mine) {
  if (launch.host.empty() || launch.port < 1 || launch.port > 65535)
    return Status(Code::kInvalid, fmt::format("'{}:{}' is no place to meet", launch.host, launch.port));
  return launch.rank == 0 ? Host(launch, mine).run() : visit(launch, mine);
}

}  // namespace tithe::meeting
