// SPDX-License-Identifier: Apache-2.0
// tithe doctor: lists the optional parts that this machine has, and how to get the missing ones. It changes nothing.
#include <dlfcn.h>
#include <fmt/format.h>
#include <hwy/targets.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "advisor/sim/profile.h"
#include "base/usable_cores.h"
#include "finding.h"
#include "tithe/connect.h"
#include "tithe/seam/codec.h"
#include "tithe/seam/machine.h"
#include "try_transport.h"
#include "value_file.h"
#include "verb.h"

namespace tithe::cli {
namespace {

// First line that a command prints; empty if it fails.
std::string first_line(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  std::array<char, 512> line{};
  const bool any = std::fgets(line.data(), line.size(), pipe) != nullptr;
  while (std::fgetc(pipe) != EOF) {
  }
  const bool done = pclose(pipe) == 0;
  std::string text = any && done ? line.data() : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

bool on_path(std::string_view program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  for (;;) {
    const std::size_t colon = rest.find(':');
    if (access((fs::path(rest.substr(0, colon)) / program).c_str(), X_OK) == 0) return true;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return access((fs::path("/usr/sbin") / program).c_str(), X_OK) == 0;
}

Finding processor() {
  std::string model = sim::machine_name();
  if (model == "unknown") model = "processor of unknown name";
  const int cores = usable_cores();
  Json targets = Json::array();
  std::string text;
  // Highway numbers its targets so that a better one has a lower bit.
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const char* target = hwy::TargetName(left & -left);
    targets.push_back(target);
    text += fmt::format("{}{}", text.empty() ? "" : " ", target);
  }
  Finding f{"processor", true, fmt::format("{}, {} usable cores, vectors: {}", model, cores, text), {}};
  if (target() != tithe::targets().front())
    f.what += fmt::format("; TITHE_TARGET limits them to {}", target());
  if (!this_machine().simd) f.what += "; TITHE_FORCE_REFERENCE=1 turns vectors off";
  f.details = {{"model", model}, {"cores", cores}, {"targets", targets}, {"simd", this_machine().simd}};
  return f;
}

// A transport between processes: its devices, and whether two ranks of this machine reach each other.
Finding transport(const TransportKind& kind) {
  if (const Status s = kind.usable(); !s.ok())
    return {std::string(kind.name), false, "not in this build", s.what()};
  const TransportProbe found = kind.probe();
  const Status tried = found.devices.empty() ? Status() : try_transport(kind.name);
  const Result<TransportChoice> taken = choose_transport("auto");
  Finding f{std::string(kind.name),
            !found.devices.empty() && found.problems.empty() && tried.ok(),
            found.version,
            {}};
  for (std::size_t i = 0; i < found.devices.size(); ++i)
    f.what += (i > 0 ? " " : f.what.empty() ? "" : "; ") + found.devices[i];
  if (found.devices.empty()) f.what += "; no path to another rank";
  if (!found.devices.empty())
    f.what +=
        tried.ok() ? "; two ranks here exchanged a message" : "; two ranks here do NOT reach each other";
  if (taken.ok() && taken->kind == &kind) f.what += "; the default";
  for (const std::string& lack : found.problems) f.cure += (f.cure.empty() ? "" : "; ") + lack;
  if (!tried.ok()) f.cure += (f.cure.empty() ? "" : "; ") + tried.what();
  f.details = {{"version", found.version},
               {"devices", found.devices},
               {"problems", found.problems},
               {"tried", tried.ok() ? Json(!found.devices.empty()) : Json(tried.what())}};
  return f;
}

// Queries the driver directly, so no CUDA toolkit is needed.
Finding gpu() {
  Finding f{"gpu", false, "none", "not needed: every codec runs on the processor"};
  f.details = {{"devices", Json::array()}};
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return f;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_of = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto name_of = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  int count = 0;
  if (init == nullptr || count_of == nullptr || name_of == nullptr || init(0) != 0 || count_of(&count) != 0 ||
      count == 0) {
    f.what = "a CUDA driver, but no device";
    return f;
  }
  f = {"gpu", true, "", "", {{"devices", Json::array()}}};
  for (int device = 0; device < count; ++device) {
    std::array<char, 256> text{};
    if (name_of(text.data(), static_cast<int>(text.size()), device) != 0) continue;
    f.details["devices"].push_back(text.data());
    f.what += fmt::format("{}{}", f.what.empty() ? "" : ", ", text.data());
  }
  return f;
}

// True if a child process may have a network namespace of its own; tried, in a child that ends at once.
bool may_unshare(int what) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) _exit(unshare(what) == 0 ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Finding namespaces() {
  const bool as_root = may_unshare(CLONE_NEWNET);
  const bool as_user = may_unshare(CLONE_NEWUSER | CLONE_NEWNET);
  const bool ip = on_path("ip");
  const bool tc = on_path("tc");
  Finding f{"namespaces", (as_root || as_user) && ip && tc, "", ""};
  f.what = as_root   ? "network namespaces as this user"
           : as_user ? "network namespaces inside a user namespace"
                     : "no network namespaces";
  f.what += fmt::format(", ip {}, tc {}", ip ? "yes" : "no", tc ? "yes" : "no");
  if (!as_root && !as_user)
    f.cure =
        "`make demo` shapes its links in network namespaces: run it as root, or allow user namespaces "
        "(sysctl kernel.unprivileged_userns_clone=1)";
  else if (!ip || !tc)
    f.cure = "apt-get install iproute2";
  f.details = {{"as_this_user", as_root}, {"in_user_namespace", as_user}, {"ip", ip}, {"tc", tc}};
  return f;
}

// The module itself must load: a folder called tithe in Python's search path also imports without an error.
constexpr std::string_view kAskPython =
    "import sys, importlib.util as u, importlib.metadata as m\n"
    "t = m.version('torch') if u.find_spec('torch') else '-'\n"
    "try:\n"
    "    import tithe._core as c; s = 'ok ' + c.__file__\n"
    "except Exception as e: s = 'no ' + str(e).replace('\\n', ' ')\n"
    "print('%d.%d.%d' % sys.version_info[:3], t, s)";

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A command that a wheel has installed belongs to the interpreter in its own folder.
std::string python_beside() {
  std::error_code none;
  const auto found = std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "python";
  return !none && std::filesystem::exists(found, none) ? found.string() : std::string();
}

Finding python(const std::string& requested) {
  std::vector<std::string> tries;
  if (!requested.empty()) {
    tries = {requested};
  } else {
    if (const char* active = std::getenv("VIRTUAL_ENV"))
      tries.push_back(fmt::format("{}/bin/python", active));
    if (const std::string own = python_beside(); !own.empty()) tries.push_back(own);
    tries.insert(tries.end(), {".venv/bin/python", "python3"});
  }
  Finding f{"python", false, "none", "apt-get install python3 python3-venv, or use tithe from C++"};
  if (!requested.empty())
    f = {"python", false, fmt::format("{} does not run", requested), "select another one with --python"};
  for (const std::string& interpreter : tries) {
    const std::string answer =
        first_line(fmt::format("{} -c {}", shell_quoted(interpreter), shell_quoted(kAskPython)));
    const std::size_t a = answer.find(' ');
    const std::size_t b = answer.find(' ', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string version = answer.substr(0, a);
    const std::string torch = answer.substr(a + 1, b - a - 1);
    const bool module = answer.substr(b + 1, 3) == "ok ";
    const std::string rest = answer.substr(std::min(b + 4, answer.size()));
    f.there = torch != "-" && module;
    f.what = fmt::format("{} ({}), torch {}, tithe {}", version, interpreter, torch == "-" ? "no" : torch,
                         module ? "yes (" + rest + ")" : "no");
    f.cure =
        torch == "-"
            ? "install torch there, or run `make setup`, which creates a virtual environment in .venv with it"
        : !module ? fmt::format(
                        "`import tithe._core` fails ({}): pip install tithe there, or `make build` and "
                        "export PYTHONPATH=$PWD/python",
                        rest)
                  : "";
    f.details = {{"interpreter", interpreter},
                 {"version", version},
                 {"torch", torch == "-" ? Json() : Json(torch)},
                 {"tithe", module},
                 {module ? "path" : "error", rest}};
    break;
  }
  return f;
}

Result<Report> examine(const std::string& interpreter) {
  Report report;
  report.json = {{"version", TITHE_VERSION}, {"findings", Json::array()}, {"missing", Json::array()}};
  report.text = "tithe " TITHE_VERSION "\n";
  std::vector<Finding> findings{processor()};
  for (const TransportKind* kind : all_transports())
    if (kind->open != nullptr) findings.push_back(transport(*kind));
  findings.insert(findings.end(), {launcher(), gpu(), namespaces(), python(interpreter)});
  for (const Finding& f : findings) {
    report.text += fmt::format("{:<4} {:<11} {}\n", f.there ? "ok" : "--", f.name, f.what);
    if (!f.there) report.text += fmt::format("{:16} {}\n", "", f.cure);
    Json json = {{"name", f.name}, {"there", f.there}, {"what", f.what}};
    if (!f.there) {
      json["cure"] = f.cure;
      report.json["missing"].push_back(f.name);
    }
    json["details"] = f.details;
    report.json["findings"].push_back(std::move(json));
  }
  return report;
}

Run declare_doctor(CLI::App& app) {
  auto interpreter = std::make_shared<std::string>();
  app.add_option("--python", *interpreter,
                 "the Python to check, instead of the active one, .venv's or python3");
  return [interpreter] { return examine(*interpreter); };
}

}  // namespace

const Verb doctor_verb = {.name = "doctor",
                          .doc = "show the parts that this machine has, and how to install missing ones",
                          .declare = declare_doctor};

}  // namespace tithe::cli
