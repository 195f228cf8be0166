// SPDX-License-Identifier: Apache-2.0
#include "emulated_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include "base/open_file.h"
#include "base/text.h"

namespace tithe::cli {
namespace {

constexpr std::size_t kMaxShown = 300;
constexpr int kLeft = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC;
constexpr std::chrono::seconds kLinkUp{20};

Status refused(std::string_view why) {
  return {Code::kUnsupported, fmt::format("emulated hosts are not available here: {}; run as root (in a "
                                          "container: --privileged), or use --link none",
                                          why)};
}

Status system_refused(std::string_view what) {
  return refused(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Users' PATH often has no folder of the system's tools.
void exec_tool(std::vector<char*>& argv) {
  execvp(argv[0], argv.data());
  for (const char* folder : {"/usr/sbin/", "/sbin/"})
    execv((folder + std::string(argv[0])).c_str(), argv.data());
}

// Runs a command, whose words are separated by blanks.
Status tool(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words(std::istream_iterator<std::string>(in), {});
  std::array<int, 2> output{};
  if (pipe(output.data()) != 0) return system_refused("pipe");
  const pid_t child = fork();
  if (child < 0) return system_refused("fork");
  if (child == 0) {
    dup2(output[1], STDERR_FILENO);
    dup2(output[1], STDOUT_FILENO);
    close(output[0]);
    close(output[1]);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    exec_tool(argv);
    constexpr char kMissing[] = "not found: install iproute2";
    static_cast<void>(!write(STDERR_FILENO, kMissing, sizeof kMissing - 1));
    _exit(127);
  }
  close(output[1]);
  const std::string text = read_all(output[0]);
  close(output[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status == 0) return {};
  return refused(fmt::format("{}: {}", line, printable(text, kMaxShown)));
}

Status all_of(std::initializer_list<std::string> lines) {
  for (const std::string& line : lines) TITHE_TRY(tool(line));
  return {};
}

bool write_text(const char* path, std::string_view text) {
  const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool whole = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(descriptor);
  return whole;
}

// The bytes that may leave at once after a pause: half a millisecond of the link, so that the pauses of a training step
// earn no free transfer, and at least four packets, so that the timer can keep the rate.
double burst_bytes(const ShapedLink& link) { return std::max(6250.0, link.bytes_per_second * 0.0005); }

// TCP hands down trains of packets, and tbf takes a train apart that is longer than its burst, headers included: each
// packet then goes its own way through bridge and queues, which took most of the processor at 1 Gb/s.
std::string short_trains(std::string_view device, const ShapedLink& link) {
  return fmt::format("ip link set dev {} gso_max_size {:.0f}", device,
                     std::min(65536.0, 0.9 * burst_bytes(link)));
}

std::string shape(std::string_view device, const ShapedLink& link) {
  return fmt::format("tc qdisc add dev {} root tbf rate {:.0f}bit burst {:.0f} limit {}", device,
                     8 * link.bytes_per_second, burst_bytes(link), link.queue_bytes);
}

const char* link_device(const ShapedLink& link) { return link.has_card() ? "wire0" : "eth0"; }

}  // namespace

std::string read_word(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

CardMode card_mode(std::string_view word) {
  const auto* at = std::find(std::begin(kCardModes), std::end(kCardModes), word);
  return static_cast<CardMode>(at - std::begin(kCardModes));
}

std::string host_address(int host) { return fmt::format("10.77.{}.{}", (host + 1) / 256, (host + 1) % 256); }

Status remove_from_network() {
  int what = kLeft;
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (user != 0) what |= CLONE_NEWUSER;
  if (unshare(what) != 0) return system_refused("unshare");
  if (user == 0) return {};
  if (!write_text("/proc/self/setgroups", "deny") ||
      !write_text("/proc/self/uid_map", fmt::format("0 {} 1", user)) ||
      !write_text("/proc/self/gid_map", fmt::format("0 {} 1", group)))
    return system_refused("a namespace of users");
  return {};
}

Status join_network(pid_t other) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, other, 0));
  if (descriptor < 0) return system_refused("pidfd_open");
  std::error_code none;
  const std::filesystem::path folder =
      std::filesystem::current_path(none);  // a namespace of mounts begins at its root
  const int done = setns(descriptor, kLeft);
  Status s = done == 0 ? Status{} : system_refused("setns");
  if (s.ok() && chdir(folder.c_str()) != 0) s = system_refused(folder.string());
  close(descriptor);
  return s;
}

Status make_switch() {
  return all_of({"ip link set lo up", "ip link add switch type bridge", "ip link set switch up"});
}

Status plug_in(pid_t process, int host, const ShapedLink& link) {
  const std::string ours = fmt::format("port{}", host);
  return all_of(
      {fmt::format("ip link add {} type veth peer name {} netns {}", ours, link_device(link), process),
       fmt::format("ip link set {} master switch up", ours), shape(ours, link)});
}

Result<std::optional<pid_t>> start_card(pid_t process, const ShapedLink& link) {
  if (!link.has_card()) return std::optional<pid_t>{};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return system_refused("fork");
  if (child > 0) return std::optional(child);
  const Status s = join_network(process);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!s.ok() || getppid() != parent) _exit(1);
  // The card's words at its end go nowhere; why it could not begin, to the command's own error output.
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  const std::string delay = fmt::format("{}", link.delay_ms);
  // Where it is only for the delay, no frame is long enough to be packed.
  const char* least = link.card == CardMode::kNone ? "65535" : "64";
  execl("/proc/self/exe", "tithe", "card", "--host", "eth0", "--wire", "wire0", "--delay-ms", delay.c_str(),
        "--least", least, link.card == CardMode::kLossy ? "--lossy" : nullptr, nullptr);
  _exit(1);
}

Status enter_host(int host, const ShapedLink& link) {
  // The files that UCX and others look up under /sys are to be this namespace's.
  if (mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
      mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0)
    return system_refused("/sys");
  const std::string name = fmt::format("host{}", host);
  if (sethostname(name.data(), name.size()) != 0) return system_refused("sethostname");
  const auto begin = std::chrono::steady_clock::now();
  const auto wait_until = [begin](const auto& is_so, std::string_view why) -> Status {
    for (; !is_so(); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (std::chrono::steady_clock::now() - begin > kLinkUp) return refused(why);
    return {};
  };
  TITHE_TRY(wait_until([] { return if_nametoindex("eth0") != 0; }, "the card did not create eth0"));
  TITHE_TRY(
      all_of({fmt::format("ip address add {}/16 dev eth0", host_address(host)), "ip link set lo up",
              "ip link set eth0 up", short_trains(link_device(link), link), shape(link_device(link), link)}));
  // Fixed, so that machines with different defaults give comparable figures. Some let a namespace have no cubic.
  for (const char* control : {"cubic", "reno"})
    if (write_text("/proc/sys/net/ipv4/tcp_congestion_control", control)) break;
  // The kernel reports some time later that a link is up, and UCX uses only interfaces that are up.
  return wait_until(
      [&] {
        return read_word(fmt::format("/sys/class/net/{}/operstate", link_device(link)).c_str()) == "up";
      },
      "the link is not up");
}

void keep_ucx_on_link() {
  setenv("UCX_TLS", "tcp,sm,self", 1);
  setenv("UCX_NET_DEVICES", "eth0", 1);
}

Result<std::uint64_t> bytes_on_the_wire() {
  const char* device = if_nametoindex("wire0") != 0 ? "wire0" : "eth0";
  const std::string path = fmt::format("/sys/class/net/{}/statistics/tx_bytes", device);
  std::ifstream file(path);
  std::uint64_t bytes = 0;
  if (!(file >> bytes)) return Status(Code::kIo, path + ": cannot be read");
  return bytes;
}

}  // namespace tithe::cli
