// SPDX-License-Identifier: Apache-2.0
// tithe hosts: runs a command once per rank, on emulated hosts behind shaped links, with the variables that torchrun
// sets. So one machine can show how a job behaves on a slow network.
#include "tithe/hosts.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "link_options.h"
#include "local_ranks.h"
#include "verb.h"

namespace tithe::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kMasterPort = 29500;  // torchrun's own default
constexpr auto kGrace = 5s;         // between SIGTERM and SIGKILL, once another rank has failed
constexpr int kNoCommand = 127;     // the exit code of a shell

struct HostsArgs {
  std::vector<std::string> command;
  std::string hosts = "4x1", link, card = kCardModes[0];
  std::size_t queue_bytes = kSwitchQueueBytes;
  double delay_ms = 0;
  bool json = false;
};

void say(const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); }

// As torchrun has it, with the first host as the master. A process of the command is no rank of this program.
void set_variables(const Hosts& hosts, Rank me, int world) {
  const int host = hosts.of_rank(me);
  const std::vector<int> sharing = hosts.ranks(world)[static_cast<std::size_t>(host)];
  say("RANK", me);
  say("WORLD_SIZE", world);
  say("LOCAL_RANK", static_cast<int>(std::find(sharing.begin(), sharing.end(), me) - sharing.begin()));
  say("LOCAL_WORLD_SIZE", static_cast<int>(sharing.size()));
  say("GROUP_RANK", host);
  say("MASTER_PORT", kMasterPort);
  setenv("MASTER_ADDR", host_address(0).c_str(), 1);
  setenv("GLOO_SOCKET_IFNAME", "eth0", 1);
  setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
  unsetenv("TITHE_AS_RANK");
  keep_ucx_on_link();
}

// The command in a process group of its own, to its end, or to that of the job where another rank fails.
Status run_command(const HostsArgs& args, Rank me, RankBoard& board) {
  const pid_t child = fork();
  if (child < 0) return {Code::kIo, fmt::format("fork: {}", std::strerror(errno))};
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGINT, SIG_DFL);
    std::vector<char*> words;
    for (const std::string& word : args.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    if (args.json) dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout is the report's
    execvp(words[0], words.data());
    _exit(kNoCommand);
  }
  std::optional<Clock::time_point> terminated_at;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!board.failure().ok()) {
      if (!terminated_at.has_value()) kill(-child, SIGTERM);
      terminated_at = terminated_at.value_or(Clock::now());
      if (Clock::now() - *terminated_at > kGrace) kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(20ms);
  }
  if (terminated_at.has_value() || status == 0) return {};
  if (WIFSIGNALED(status))
    return {Code::kPeerLost, fmt::format("rank {}: the command was ended by signal {}", me, WTERMSIG(status)),
            me};
  if (WEXITSTATUS(status) == kNoCommand)
    return {Code::kInvalid, fmt::format("{}: command not found", args.command[0])};
  return {Code::kIo, fmt::format("rank {}: the command ended with status {}", me, WEXITSTATUS(status)), me};
}

Status be_one(const HostsArgs& args, const Hosts& hosts, const ShapedLink& link, Rank me, RankBoard& board) {
  TITHE_TRY(join_own_host(hosts, link, me, board));
  set_variables(hosts, me, board.world());
  TITHE_TRY(run_command(args, me, board));
  TITHE_TRY(board.barrier());
  const Result<std::uint64_t> bytes = bytes_on_the_wire();
  if (!bytes.ok()) return bytes.status();
  board.numbers()[static_cast<std::size_t>(me)] = static_cast<double>(*bytes);
  return board.barrier();
}

Result<Report> run_hosts(HostsArgs args, bool json) {
  args.json = json;
  int world = 0;
  Result<Hosts> hosts = Hosts::parse("", 1);
  for (int ranks = 1; ranks <= kMaxRanks && world == 0; ++ranks)
    if (Result<Hosts> fits = Hosts::parse(args.hosts, ranks); fits.ok()) {
      world = ranks;
      hosts = std::move(fits);
    }
  if (world == 0)
    return Status(
        Code::kInvalid,
        fmt::format(
            "--hosts: must be hosts and ranks of each, such as 4x1 or 3+1, of at most {} ranks; got '{}'",
            kMaxRanks, args.hosts));
  const int count = hosts->count(world);
  if (count > kMaxHosts) return Status(Code::kInvalid, fmt::format("--hosts: at most {}", kMaxHosts));
  const Result<std::optional<ShapedLink>> link =
      shaped_link(args.link, false, args.queue_bytes, args.card, args.delay_ms);
  if (!link.ok()) return link.status();
  if (!link->has_value())
    return Status(Code::kInvalid, "--link: give a rate, because hosts without a link are one host");
  Result<RankBoard> board = open_board(world, static_cast<std::size_t>(world));
  if (!board.ok()) return board.status();
  const Result<std::string> answer = run_processes(*board, *hosts, *link, [&](Rank me, std::string* text) {
    const auto begin = Clock::now();
    TITHE_TRY(be_one(args, *hosts, **link, me, *board));
    const std::span<const double> bytes = board->numbers();
    const auto most = static_cast<std::uint64_t>(*std::max_element(bytes.begin(), bytes.end()));
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    *text = Json{{"seconds", seconds.count()}, {"wire_bytes_per_host", most}}.dump();
    return Status{};
  });
  if (!answer.ok()) return answer.status();
  const Json found = Json::parse(*answer, nullptr, false);
  if (found.is_discarded()) return Status(Code::kIo, "rank 0 gave an incomplete answer");
  Report report;
  report.json = {{"hosts", count}, {"ranks", world}, {"link", args.link}, {"card", args.card}};
  report.json.update(found);
  report.text =
      fmt::format("{} ranks on {} hosts behind {}: {:.3f} s; the busiest host sent {} bytes\n", world, count,
                  args.link, double{found["seconds"]}, std::uint64_t{found["wire_bytes_per_host"]});
  return report;
}

Run declare_hosts(CLI::App& app) {
  auto args = std::make_shared<HostsArgs>();
  app.add_option("command", args->command, "the command of each rank, after --: -- python train.py")
      ->required();
  app.add_option("--hosts", args->hosts, "hosts and ranks of each: 4x1, 2x2, 3+1")->capture_default_str();
  app.add_option("--link", args->link, "the rate of each host's link, e.g. 100Mb/s")->required();
  add_queue_and_card(app, args->queue_bytes, args->card);
  add_delay(app, args->delay_ms);
  return [args, &app] { return run_hosts(*args, app.count("--json") > 0); };
}

}  // namespace

const Verb hosts_verb = {
    .name = "hosts",
    .doc = "run a command on hosts that are emulated on this machine, with links of a given rate",
    .declare = declare_hosts};

}  // namespace tithe::cli
