// SPDX-License-Identifier: Apache-2.0
// tithe advise: runs a training command until its session has observed enough steps, and prints how to make them
// shorter. The session computes the advice (advisor/auto/step_advice.h); this verb starts the command, waits, and
// prints.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "file_io.h"
#include "output.h"
#include "plan/allowance.h"
#include "verb.h"

namespace tithe::cli {
namespace {

using namespace std::chrono_literals;

struct AdviseArgs {
  std::vector<std::string> command, allow;
  std::string out;
  bool keep = false;
};

// The command, in its own process group. It is terminated with this object, and when this process ends.
class Job {
 public:
  ~Job() { stop(); }

  Status start(const AdviseArgs& args, const std::string& advice, const std::string& allowed) {
    setenv("TITHE_ADVISE", advice.c_str(), 1);
    setenv("TITHE_ADVISE_ALLOW", allowed.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : args.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    int failed[2];  // receives errno if the command cannot be started
    if (pipe2(failed, O_CLOEXEC) != 0)
      return {Code::kIo, fmt::format("{}: {}", args.command[0], std::strerror(errno))};
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout is reserved for the advice
      execvp(words[0], words.data());
      const int error = errno;
      static_cast<void>(!write(failed[1], &error, sizeof error));
      _exit(127);
    }
    close(failed[1]);
    int error = pid_ < 0 ? errno : 0;
    if (pid_ > 0) static_cast<void>(!read(failed[0], &error, sizeof error));
    close(failed[0]);
    if (error != 0) {
      while (pid_ > 0 && ended() < 0) std::this_thread::sleep_for(1ms);
      return {Code::kInvalid, fmt::format("{}: {}", args.command[0], std::strerror(error))};
    }
    return {};
  }

  // Its exit status as a shell reports it; -1: it is running.
  int ended() {
    int status = 0;
    if (pid_ <= 0 || waitpid(pid_, &status, WNOHANG) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void stop() {
    constexpr std::chrono::milliseconds kPatience = 10s, kLook = 20ms;
    if (pid_ <= 0) return;
    const pid_t group = pid_;
    kill(-group, SIGTERM);
    for (auto waited = 0ms; waited < kPatience && ended() < 0; waited += kLook)
      std::this_thread::sleep_for(kLook);
    kill(-group, SIGKILL);
    while (pid_ > 0 && ended() < 0) std::this_thread::sleep_for(kLook);
  }

 private:
  pid_t pid_ = -1;
};

std::string text_of(const Json& advice) {
  const double now = advice.at("step_ms");
  std::string text = fmt::format("{:<28} {:>12} {:>10}\n", fmt::format("{} ranks", int{advice.at("ranks")}),
                                 "step, ms", "of now");
  const auto row = [&](std::string_view what, double ms) {
    text += fmt::format("{:<28} {:>12.1f} {:>10.3f}\n", what, ms, ms / now);
  };
  row("now", now);
  const std::string bf16 = advice.at("bf16");
  row(bf16.empty() ? "bf16" : bf16, advice.at("bf16_ms"));
  row(advice.at("stays") ? "best of the allowed codecs" : "the plan", advice.at("plan_ms"));
  if (advice.contains("hint"))
    row(fmt::format("with {} too", std::string(advice.at("hint").at("codec"))),
        advice.at("hint").at("step_ms"));
  row("without a network", advice.at("no_network_ms"));
  std::vector<std::string> lines = advice.at("lines");
  std::string first;  // whether to compress at all comes first
  if (!lines.empty() && lines[0].starts_with("Do not compress")) {
    first = lines[0] + "\n";
    lines.erase(lines.begin());
  }
  text += '\n';
  for (const std::string& line : lines) text += line + "\n";
  return first + text;
}

// Starts the command with TITHE_ADVISE set to a file in a temporary folder, and waits until the session writes that
// file.
Result<Report> run_advise(const AdviseArgs& args) {
  std::string allowed = "auto";
  for (const std::string& text : args.allow) {
    const Result<Allowance> one = parse_allowance(text);
    if (!one.ok()) return Status(one.status().code(), "--allow: " + one.status().what());
    allowed += (allowed == "auto" ? ":allow=" : "+") + to_string(*one);
  }
  if (const Result<AutoSpec> spec = parse_auto(allowed); !spec.ok()) return spec.status();
  TITHE_TRY(check_folders(std::array{args.out}));
  const fs::path folder = fs::temp_directory_path() / fmt::format("tithe-advise-{}", getpid());
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) return Status(Code::kIo, fmt::format("{}: {}", folder.string(), error.message()));
  const std::unique_ptr<const fs::path, void (*)(const fs::path*)> removed(&folder, [](const fs::path* f) {
    std::error_code none;
    fs::remove_all(*f, none);
  });
  const fs::path advice = folder / "advice.json";
  Job job;
  TITHE_TRY(job.start(args, advice.string(), allowed));
  int status = -1;
  while (status < 0 && !fs::exists(advice)) {
    std::this_thread::sleep_for(20ms);
    status = job.ended();
  }
  if (!fs::exists(advice))
    return Status(
        Code::kIo,
        fmt::format("{} ended with status {} before a session of tithe had seen enough steps: it takes "
                    "some 30, of a model with tithe.torch.attach(model)",
                    args.command[0], status));
  std::stringstream text;
  text << std::ifstream(advice).rdbuf();
  Report report;
  report.json = Json::parse(text.str(), nullptr, false);
  if (report.json.is_discarded()) return Status(Code::kIo, "the session's advice cannot be read");
  if (report.json.contains("error")) return Status(Code::kIo, std::string(report.json["error"]));
  report.text = text_of(report.json);
  if (!args.out.empty()) {
    const std::string rules = report.json.at("rules").dump(1) + "\n";
    TITHE_TRY(write_file(args.out, rules));
  }
  while (args.keep && status < 0) {
    std::this_thread::sleep_for(100ms);
    status = job.ended();
  }
  return report;
}

Run declare_advise(CLI::App& app) {
  auto args = std::make_shared<AdviseArgs>();
  app.add_option("command", args->command,
                 "the training command, after --: -- torchrun --nproc-per-node 4 train.py")
      ->required();
  app.add_option("--allow", args->allow,
                 "a codec to allow in addition to fp32, bf16 and zip; 'PATTERN: CODEC' for tensors by key");
  add_output(app, "-o,--out", args->out, "write the plan as a file of rules (docs/guide/choices.md)");
  app.add_flag("--keep", args->keep, "let the command run to its end instead of stopping it");
  return [args] { return run_advise(*args); };
}

}  // namespace

const Verb advise_verb = {
    .name = "advise",
    .doc = "advise how to shorten the steps of a training command, from its first steps",
    .declare = declare_advise};

}  // namespace tithe::cli
