// SPDX-License-Identifier: Apache-2.0
// The command forks a process for each rank, which executes the same program with the same arguments. TITHE_AS_RANK has
// its rank and the descriptors of the board and of the answer. On emulated hosts a further process holds the network of
// the hosts, and the ranks are its children. Each process ends with its parent (PR_SET_PDEATHSIG), so no rank outlives
// the command.
#include "local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>

#include "base/open_file.h"
#include "progress.h"

namespace tithe::cli {
namespace {

// "<rank> <descriptor of the board> <descriptor of the answer> <who started it>"
constexpr const char* kAsRank = "TITHE_AS_RANK";
constexpr int kCouldNotStart = 3;
constexpr Rank kSwitch =
    -1;  // the process between the command and the ranks, which holds the network that joins them

struct RankPlace {
  Rank rank = 0;    // or kSwitch
  int board = -1;   // descriptor of the board
  int answer = -1;  // descriptor of the file for rank 0's answer
};

Status io(std::string_view what) { return {Code::kIo, fmt::format("{}: {}", what, std::strerror(errno))}; }

// The program's own command line, once more.
[[noreturn]] void become(const RankPlace& place, pid_t parent) {
  const std::string who = fmt::format("{} {} {} {}", place.rank, place.board, place.answer, parent);
  setenv(kAsRank, who.c_str(), 1);
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(kCouldNotStart);
}

// Waits for all ranks; their errors are on the board. A card of a host must not end before the ranks: its host would
// have no network, and ranks would wait for each other until their timeouts.
void await(const std::vector<pid_t>& children, RankBoard& board) {
  for (std::vector<pid_t> left = children; !left.empty();) {
    int status = 0;
    const pid_t child = wait(&status);
    if (child < 0 && errno == EINTR) continue;
    if (child < 0) return;
    const auto found = std::find(children.begin(), children.end(), child);
    const auto rank = static_cast<int>(found - children.begin());
    if (found == children.end()) {
      board.fail({Code::kIo, "the card of a host has ended"});
      for (const pid_t each : left) kill(each, SIGKILL);
      continue;
    }
    std::erase(left, child);
    if (WIFSIGNALED(status))
      board.fail(
          {Code::kPeerLost, fmt::format("rank {} was ended by signal {}", rank, WTERMSIG(status)), rank});
    else if (WEXITSTATUS(status) != 0)
      board.fail({Code::kIo, fmt::format("rank {} could not start (exit code {})", rank, WEXITSTATUS(status)),
                  rank});
  }
}

// A rank on an emulated host. The first of a host has none to join (0), and waits until a link leads there.
Result<pid_t> start_on_host(const RankPlace& place, int host, pid_t join, const ShapedLink& link) {
  std::array<int, 2> up{}, go{};
  // The host's card, started meanwhile, must not inherit this descriptor: the rank reads until its end is closed.
  if (pipe2(up.data(), O_CLOEXEC) != 0 || pipe2(go.data(), O_CLOEXEC) != 0) return io("pipe");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return io("fork");
  if (child == 0) {
    close(up[0]);
    close(go[1]);
    const Status s = join == 0 ? remove_from_network() : join_network(join);
    static_cast<void>(write_all(up[1], s.ok() ? "y" : s.what()));
    close(up[1]);
    if (read_all(go[0]) != "y") _exit(kCouldNotStart);
    close(go[0]);
    become(place, parent);
  }
  close(up[1]);
  close(go[0]);
  const std::string answer = read_all(up[0]);
  close(up[0]);
  Status s = answer == "y" ? Status{} : Status(Code::kUnsupported, answer);
  if (s.ok() && join == 0) s = plug_in(child, host, link);
  if (s.ok() && join == 0) s = start_card(child, link).status();
  if (s.ok() && !write_all(go[1], "y")) s = io("pipe");
  close(go[1]);
  if (s.ok()) return child;
  waitpid(child, nullptr, 0);
  return s;
}

Result<pid_t> start(const RankPlace& place) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return io("fork");
  if (child == 0) become(place, parent);
  return child;
}

// `start_one` starts rank r.
template <typename StartOne>
std::vector<pid_t> start_all(RankBoard& board, const StartOne& start_one) {
  std::vector<pid_t> children;
  for (Rank r = 0; r < board.world(); ++r) {
    const Result<pid_t> child = start_one(r);
    if (!child.ok()) {
      board.fail(child.status());
      break;
    }
    children.push_back(*child);
  }
  return children;
}

// Starts the process that holds the network of the hosts, and waits for it.
Status hold_hosts(const RankPlace& place) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return io("fork");
  if (child == 0) {
    Result<RankBoard> board = RankBoard::join(place.board);
    const Status s = remove_from_network();
    if (s.ok()) become(place, parent);
    if (board.ok()) board->fail(s);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status == 0) return {};
  return {Code::kIo, "the process of the emulated hosts has ended"};
}

// Each process ends with the process that started it, also if that one has ended already.
void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCouldNotStart);
  std::signal(SIGINT, SIG_IGN);  // only the command reports the interrupt
}

// nullopt in the command that a user started.
std::optional<RankPlace> rank_place() {
  const char* who = std::getenv(kAsRank);
  if (who == nullptr) return std::nullopt;
  RankPlace place;
  int parent = 0;
  if (std::sscanf(who, "%d %d %d %d", &place.rank, &place.board, &place.answer, &parent) != 4)
    _exit(kCouldNotStart);
  end_with_parent(parent);
  return place;
}

Status run_on(RankBoard& board, const std::function<Status()>& work) {
  const Status s = [&]() -> Status {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return {Code::kUnsupported, fmt::format("not enough memory for {} ranks", board.world())};
    }
  }();
  if (!s.ok()) board.fail(s);
  return s;
}

[[noreturn]] void be_rank(const RankPlace& place, RankBoard& board, const RankWork& work) {
  std::string answer;
  if (!run_on(board, [&] { return work(place.rank, &answer); }).ok()) _exit(1);
  if (place.rank == 0 && !write_all(place.answer, answer)) _exit(kCouldNotStart);
  _exit(0);
}

[[noreturn]] void be_switch(const RankPlace& place, RankBoard& board, const Hosts& hosts,
                            const ShapedLink& link) {
  if (const Status s = make_switch(); !s.ok()) {
    board.fail(s);
    _exit(0);
  }
  std::vector<pid_t> first(static_cast<std::size_t>(hosts.count(board.world())), 0);
  await(start_all(board,
                  [&](Rank r) {
                    const int host = hosts.of_rank(r);
                    pid_t& join = first[static_cast<std::size_t>(host)];
                    Result<pid_t> child = start_on_host({r, place.board, place.answer}, host, join, link);
                    if (join == 0 && child.ok()) join = *child;
                    return child;
                  }),
        board);
  _exit(0);
}

}  // namespace

double process_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Status process_transport(std::string& transport, bool hosts, bool cards) {
  const Result<TransportChoice> choice = choose_transport(transport);
  if (!choice.ok()) return choice.status();
  if (choice->kind->open == nullptr)
    return {Code::kInvalid,
            fmt::format("--transport {}: its ranks are threads, but here ranks are processes: use ucx or tcp",
                        choice->kind->name)};
  TITHE_TRY(choice->kind->usable());
  if (transport.empty() || transport == "auto") transport = choice->kind->name;
  if (cards && choice->kind->name != "tcp")
    return {Code::kInvalid, "--card: cards require the data connections of tcp: use --transport tcp"};
  const auto has = [&](std::string_view option) { return transport.find(option) != std::string::npos; };
  if (hosts && choice->kind->name == "tcp" && !has("trust=") && !has("tls="))
    transport += fmt::format("{}trust={}{}", has(":") ? "," : ":", kHostsNetwork,
                             cards && !has("tos=") ? ",tos=0x28" : "");
  return {};
}

Status join_own_host(const Hosts& hosts, const ShapedLink& link, Rank me, RankBoard& board) {
  const int host = hosts.of_rank(me);
  if (hosts.ranks(board.world())[static_cast<std::size_t>(host)].front() == me)
    TITHE_TRY(enter_host(host, link));
  return board.barrier();
}

Result<std::unique_ptr<Transport>> connect_ranks(const std::string& transport, const Hosts& hosts,
                                                 const std::optional<ShapedLink>& link, Rank me,
                                                 RankBoard& board) {
  if (link.has_value()) {
    keep_ucx_on_link();
    if (const Status s = join_own_host(hosts, *link, me, board); !s.ok()) return s;
  }
  return open_transport(transport, {.rank = me, .world = board.world(), .all_gather = board.all_gather(me)});
}

bool is_rank_process() { return rank_place().has_value(); }

Result<RankBoard> open_board(int world, std::size_t n) {
  const std::optional<RankPlace> place = rank_place();
  return place.has_value() ? RankBoard::join(place->board) : RankBoard::create(world, n);
}

Result<std::string> run_processes(RankBoard& board, const Hosts& hosts, const std::optional<ShapedLink>& link,
                                  const RankWork& work) {
  if (const std::optional<RankPlace> place = rank_place()) {
    if (place->rank == kSwitch) be_switch(*place, board, hosts, *link);
    be_rank(*place, board, work);
  }
  // A file, not a pipe: it holds an answer of any length until all ranks have ended.
  const int answer = memfd_create("tithe-answer", 0);
  if (answer < 0) return io("memfd_create");
  if (link.has_value()) {
    if (const Status s = hold_hosts({kSwitch, board.descriptor(), answer}); !s.ok()) board.fail(s);
  } else {
    await(start_all(board, [&](Rank r) { return start({r, board.descriptor(), answer}); }), board);
  }
  const Status s = board.failure();
  lseek(answer, 0, SEEK_SET);
  std::string text = read_all(answer);
  close(answer);
  if (!s.ok()) return s;
  if (text.empty()) return Status(Code::kIo, "rank 0 ended without a result");
  return text;
}

Result<std::string> run_threads(RankBoard& board, const RankWork& work) {
  std::string answer;
  std::vector<std::thread> ranks;
  for (Rank r = 0; r < board.world(); ++r)
    ranks.emplace_back([&, r] { static_cast<void>(run_on(board, [&] { return work(r, &answer); })); });
  for (std::thread& rank : ranks) rank.join();
  if (const Status s = board.failure(); !s.ok()) return s;
  return answer;
}

RankProgress::RankProgress(RankBoard& board, const char* unit, std::uint64_t total) {
  if (isatty(STDERR_FILENO) == 0 || is_rank_process()) return;
  thread_ = std::thread([this, &board, unit, total] {
    while (!over_) {
      progress(unit, board.rounds_done(), total);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}
RankProgress::~RankProgress() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace tithe::cli
