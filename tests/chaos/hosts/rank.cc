// SPDX-License-Identifier: Apache-2.0
// One rank of `make chaos`: a process that does rounds, prints its progress, and waits at one point for input. Its
// rank comes from the environment; hosts.py in this folder starts it.
//
//   chaos_rank STRATEGY CODEC TRANSPORT TIMEOUT_MS VALUES ROUNDS GATE STATE_FILE
//
// GATE is none, open, round, between or commit: there the process prints "gate" and reads a line. The round of a gate
// is 2. Output: "opened", "round K", "trouble CODE PEER text", "saved ROUND" or "unsaved text", "files N", "closed".
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "tithe/connect.h"
#include "tithe/session.h"

namespace tithe {
namespace {

constexpr int kGateRound = 2;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void gate() {
  say("gate");
  std::string line;
  std::getline(std::cin, line);
}

std::size_t open_files() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

struct Task {
  SessionOptions options;
  std::string transport;
  std::size_t values = 0;
  int rounds = 0;
  std::string gate, file;
};

Status one_round(Session& session, const Task& task, int number) {
  std::vector<float> a(task.values, static_cast<float>(session.rank())), b(1000, 1.0F);
  const auto here = [&](const char* name) {
    if (number == kGateRound && task.gate == name) gate();
  };
  here("between");
  const Tensor first{.key = "a", .data = a.data(), .n = a.size()},
      second{.key = "b", .data = b.data(), .n = b.size()};
  const Result<Ticket> one = session.sync({&first, 1});
  if (!one.ok()) return one.status();
  here("round");
  const Result<Ticket> two = session.sync({&second, 1});
  if (!two.ok()) return two.status();
  TITHE_TRY(session.wait(*one));
  TITHE_TRY(session.wait(*two));
  here("commit");
  return session.commit();
}

Status trouble(Status s) {
  if (!s.ok()) say(fmt::format("trouble {} {} {}", name(s.code()), s.peer(), s.what()));
  return s;
}

Status work(Task& task) {
  Result<Launch> launch = launch_from_environment();
  if (!launch.ok()) return trouble(launch.status());
  launch->timeout = task.options.timeout;
  if (task.gate == "open") gate();
  say("begins");
  Result<std::unique_ptr<Transport>> transport = open_transport(task.transport, connect_options(*launch));
  if (!transport.ok()) return trouble(transport.status());
  Result<std::unique_ptr<Session>> opened = Session::open(std::move(*transport), task.options);
  if (!opened.ok()) return trouble(opened.status());
  Session& session = **opened;
  say("opened");
  Status s;
  for (int round = 0; round < task.rounds && s.ok(); ++round) {
    s = trouble(one_round(session, task, round));
    if (s.ok()) say(fmt::format("round {}", round));
  }
  const auto state = session.state();
  if (state.ok()) {
    std::ofstream(task.file, std::ios::binary)
        .write(reinterpret_cast<const char*>(state->data()), static_cast<std::streamsize>(state->size()));
    say(fmt::format("saved {}", session.stats().rounds));
  } else {
    say("unsaved " + state.status().what());
  }
  return s;
}

}  // namespace
}  // namespace tithe

int main(int argc, char** argv) {
  using namespace tithe;
  if (argc != 9) {
    std::fputs("usage: chaos_rank STRATEGY CODEC TRANSPORT TIMEOUT_MS VALUES ROUNDS GATE STATE_FILE\n",
               stderr);
    return 2;
  }
  Task task;
  task.options = {
      .codec = argv[2], .strategy = argv[1], .timeout = std::chrono::milliseconds(std::atoi(argv[4]))};
  task.transport = argv[3];
  task.values = static_cast<std::size_t>(std::atoll(argv[5]));
  task.rounds = std::atoi(argv[6]);
  task.gate = argv[7];
  task.file = argv[8];
  const Status s = work(task);
  say(fmt::format("files {}", open_files()));
  say("closed");
  return s.ok() ? 0 : 1;
}
