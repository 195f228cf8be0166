// SPDX-License-Identifier: Apache-2.0
// tithe doctor: what this machine has of what tithe can use, and how to get the rest. It only looks.
#include <dlfcn.h>
#include <fmt/format.h>
#include <hwy/targets.h>
#include <sched.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "tithe/codec.h"
#include "tithe/machine.h"
#include "value_file.h"
#include "verb.h"

namespace tithe::cli {
namespace {

// One line of the answer.
struct Finding {
  std::string name;
  bool there;
  std::string what;  // what was found
  std::string cure;  // how to get it; empty where there is nothing to get
  Json details = Json::object();
};

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
  std::ifstream info("/proc/cpuinfo");
  std::string model = "processor of unknown name";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const int cores = known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency());
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
    f.what += fmt::format("; TITHE_TARGET holds them to {}", target());
  if (!this_machine().simd) f.what += "; TITHE_FORCE_REFERENCE=1 turns vectors off";
  f.details = {{"model", model}, {"cores", cores}, {"targets", targets}, {"simd", this_machine().simd}};
  return f;
}

// Names of the transports of all memory domains that UCX can open.
std::set<std::string> ucx_transports() {
  std::set<std::string> names;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return names;
  for (unsigned c = 0; c < count; ++c) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(components[c], &attr) != UCS_OK) continue;
    std::vector<uct_md_resource_desc_t> domains(attr.md_resource_count);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = domains.data();
    if (uct_component_query(components[c], &attr) != UCS_OK) continue;
    for (const uct_md_resource_desc_t& domain : domains) {
      uct_md_config_t* config = nullptr;
      if (uct_md_config_read(components[c], nullptr, nullptr, &config) != UCS_OK) continue;
      uct_md_h md = nullptr;
      const ucs_status_t opened = uct_md_open(components[c], domain.md_name, config, &md);
      uct_config_release(config);
      if (opened != UCS_OK) continue;
      uct_tl_resource_desc_t* transports = nullptr;
      unsigned n = 0;
      if (uct_md_query_tl_resources(md, &transports, &n) == UCS_OK) {
        for (unsigned t = 0; t < n; ++t)
          names.insert(fmt::format("{}/{}", transports[t].tl_name, transports[t].dev_name));
        uct_release_tl_resource_list(transports);
      }
      uct_md_close(md);
    }
  }
  uct_release_component_list(components);
  return names;
}

Finding ucx() {
  const std::set<std::string> all = ucx_transports();
  const auto has = [&](std::initializer_list<std::string_view> kinds) {
    for (const std::string& name : all)
      for (const std::string_view kind : kinds)
        if (name.starts_with(kind)) return true;
    return false;
  };
  const bool tcp = has({"tcp/"});
  const bool shared = has({"posix/", "sysv/"});
  const bool rdma = has({"rc_", "ud_", "dc_"});
  Finding f{"ucx",
            tcp || shared || rdma,
            fmt::format("{}; tcp {}, shared memory {}, RDMA {}", ucp_get_version_string(), tcp ? "yes" : "no",
                        shared ? "yes" : "no", rdma ? "yes" : "no"),
            {}};
  if (!f.there)
    f.cure = "UCX finds no transport: check UCX_TLS and UCX_NET_DEVICES, and that a network interface is up";
  f.details = {{"version", ucp_get_version_string()},
               {"tcp", tcp},
               {"shared_memory", shared},
               {"rdma", rdma},
               {"transports", all}};
  return f;
}

// Asks the driver itself, so that no CUDA toolkit is needed.
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
    f.what = "a CUDA driver, but no device answers";
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

// Whether a child process may have a network namespace of its own; tried, in a child that ends at once.
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

Finding python() {
  static constexpr std::string_view kAsk =
      " -c 'import sys, importlib.util as u, importlib.metadata as m\n"
      "t = m.version(\"torch\") if u.find_spec(\"torch\") else \"-\"\n"
      "print(\"%d.%d.%d\" % sys.version_info[:3], t, \"yes\" if u.find_spec(\"tithe\") else \"no\")'";
  std::vector<std::string> tries;
  if (const char* active = std::getenv("VIRTUAL_ENV"))
    tries.push_back(fmt::format("'{}/bin/python'", active));
  tries.insert(tries.end(), {".venv/bin/python", "python3"});
  Finding f{"python", false, "none", "apt-get install python3 python3-venv, or use tithe from C++"};
  for (const std::string& interpreter : tries) {
    const std::string answer = first_line(interpreter + std::string(kAsk));
    if (answer.empty()) continue;
    const std::size_t a = answer.find(' ');
    const std::size_t b = answer.rfind(' ');
    const std::string version = answer.substr(0, a);
    const std::string torch = answer.substr(a + 1, b - a - 1);
    const bool module = answer.substr(b + 1) == "yes";
    f.there = torch != "-" && module;
    f.what = fmt::format("{} ({}), torch {}, tithe {}", version, interpreter, torch == "-" ? "no" : torch,
                         module ? "yes" : "no");
    f.cure = torch == "-" ? "make setup    (a virtual environment in .venv with torch)"
             : !module    ? "make build, then export PYTHONPATH=$PWD/python"
                          : "";
    f.details = {{"interpreter", interpreter},
                 {"version", version},
                 {"torch", torch == "-" ? Json() : Json(torch)},
                 {"tithe", module}};
    break;
  }
  return f;
}

Result<Report> examine() {
  Report report;
  report.json = {{"version", TITHE_VERSION}, {"findings", Json::array()}, {"missing", Json::array()}};
  report.text = "tithe " TITHE_VERSION "\n";
  for (const Finding& f : {processor(), ucx(), gpu(), namespaces(), python()}) {
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

Run declare(CLI::App&) { return examine; }

}  // namespace

const Verb doctor_verb = {
    .name = "doctor",
    .doc =
        "what this machine has: processor, UCX, GPU, namespaces, Python; what is missing and how to get it",
    .declare = declare};

}  // namespace tithe::cli
