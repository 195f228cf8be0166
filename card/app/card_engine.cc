// SPDX-License-Identifier: Apache-2.0
// The two engines behind CardEngine. The Verilated card is a child process; frames travel over a socket pair that is
// its standard input and output.
#include "card_engine.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/bytes.h"
#include "tithe/seam/machine.h"

namespace tithe::cli {
namespace {

class Model final : public CardEngine {
 public:
  explicit Model(const card::Config& config)
      : card_(config, this_machine().simd ? inceptionn::kSimd : inceptionn::kReference) {}
  Result<ByteView> pass(card::Direction direction, ByteView frame) override {
    return card_.pass(direction, frame).frame;
  }
  Result<std::array<card::Counters, 2>> counters() override {
    return std::array{card_.counters(card::Direction::kToWire), card_.counters(card::Direction::kToHost)};
  }
  std::uint64_t cycles() const override { return 0; }

 private:
  card::Card card_;
};

// The protocol and the other end: card/bench/serve.h.
class Rtl final : public CardEngine {
 public:
  Rtl(int socket, pid_t child, std::string program)
      : socket_(socket), child_(child), program_(std::move(program)) {}
  ~Rtl() override {
    close(socket_);
    waitpid(child_, nullptr, 0);
  }
  Rtl(const Rtl&) = delete;
  Rtl& operator=(const Rtl&) = delete;

  Status configure(const card::Config& c) {
    std::array<std::uint8_t, 10> text{'c',
                                      c.on,
                                      c.exact,
                                      c.mode == inceptionn::kLiteral,
                                      static_cast<std::uint8_t>(c.b),
                                      static_cast<std::uint8_t>(c.dscp)};
    wire::put(&text[6], static_cast<std::uint32_t>(c.least));
    std::uint8_t ok = 0;
    TITHE_TRY(write(text));
    TITHE_TRY(read({&ok, 1}));
    if (ok != 1) return gone("rejects these registers");
    return {};
  }
  Result<ByteView> pass(card::Direction direction, ByteView frame) override {
    std::array<std::uint8_t, 5> head{
        static_cast<std::uint8_t>(direction == card::Direction::kToWire ? 'w' : 'h')};
    wire::put(&head[1], static_cast<std::uint32_t>(frame.size()));
    TITHE_TRY(write(head));
    TITHE_TRY(write(frame));
    std::uint8_t came = 0;
    TITHE_TRY(read({&came, 1}));
    if (came == 0) return ByteView{};
    std::array<std::uint8_t, 4> bytes{};
    TITHE_TRY(read(bytes));
    // A frame that passes keeps its length; a restored frame has at most kMaxFrameBytes plus headers.
    const std::size_t n = wire::get<std::uint32_t>(bytes.data());
    if (n > std::max(frame.size(), card::kMaxFrameBytes + card::kMaxHeaderBytes))
      return gone("sent an invalid answer");
    out_.resize(n);
    TITHE_TRY(read(out_));
    return ByteView(out_);
  }
  Result<std::array<card::Counters, 2>> counters() override {
    const std::uint8_t ask = 's';
    std::array<std::uint8_t, 14 * 4 + 8> text{};
    TITHE_TRY(write({&ask, 1}));
    TITHE_TRY(read(text));
    cycles_ = wire::get<std::uint64_t>(&text[14 * 4]);
    std::array<card::Counters, 2> both;
    for (std::size_t w = 0; w < 2; ++w) {
      const auto at = [&](std::size_t i) { return wire::get<std::uint32_t>(&text[4 * (7 * w + i)]); };
      both[w] = {at(0), at(1), at(2), at(3), at(4), at(5), at(6)};
    }
    return both;
  }
  std::uint64_t cycles() const override { return cycles_; }

 private:
  Status gone(std::string_view why) const { return {Code::kIo, fmt::format("{}: {}", program_, why)}; }
  Status ended() const { return gone("has ended, or is not a program built by `make -C card/rtl engine`"); }
  Status write(ByteView bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ended();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }
  Status read(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t n = recv(socket_, bytes.data(), bytes.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ended();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  int socket_;
  pid_t child_;
  std::string program_;
  std::vector<std::uint8_t> out_;
  std::uint64_t cycles_ = 0;
};

}  // namespace

std::unique_ptr<CardEngine> card_model(const card::Config& config) { return std::make_unique<Model>(config); }

Result<std::unique_ptr<CardEngine>> card_rtl(const card::Config& config, const std::string& program) {
  const auto failed = [&](std::string_view what) {
    return Status(Code::kIo, fmt::format("{}: {}: {}", program, what, std::strerror(errno)));
  };
  if (access(program.c_str(), X_OK) != 0)
    return failed("cannot be run (`make -C card/rtl engine` builds it)");
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return failed("socketpair");
  const pid_t child = fork();
  if (child < 0) return failed("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), "--serve", nullptr);
    _exit(127);
  }
  close(ends[1]);
  auto engine = std::make_unique<Rtl>(ends[0], child, program);
  TITHE_TRY(engine->configure(config));
  return std::unique_ptr<CardEngine>(std::move(engine));
}

}  // namespace tithe::cli
