// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstdlib>

#include "finding.h"
#include "tithe/connect.h"

namespace tithe::cli {
namespace {

bool set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// The trouble between a rank and its meeting point; empty: nothing that is seen from here.
std::string trouble_at(const std::string& host) {
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error == 0) {
    freeaddrinfo(found);
    return {};
  }
  return fmt::format(
      "MASTER_ADDR={}: {}. Slurm: $(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1); "
      "Kubernetes: a Service without an address of its own (clusterIP: None), by the pods' subdomain",
      host, gai_strerror(error));
}

}  // namespace

Finding launcher() {
  const bool any = set("RANK") || set("OMPI_COMM_WORLD_RANK") || set("PMI_RANK") || set("SLURM_PROCID");
  const std::string pod = set("KUBERNETES_SERVICE_HOST") ? "a pod of Kubernetes; " : "";
  Finding f{"launcher", true, pod, {}};
  f.details = {{"rank", Json()}, {"kubernetes", !pod.empty()}};
  if (!any) {
    f.what += "this process has no rank: start it with torchrun, mpirun or srun";
    const Result<TokenGiven> token = token_from_environment();
    f.there = token.ok();
    if (!token.ok()) f.cure = token.status().what();
    return f;
  }
  const Result<Launch> launch = launch_from_environment();
  if (!launch.ok())
    return {"launcher", false, f.what + "a rank could not start", launch.status().what(), f.details};
  f.details["rank"] = launch->rank;
  f.details["world"] = launch->world;
  f.what += fmt::format("rank {} of {}", launch->rank, launch->world);
  if (!launch->file.empty()) f.what += fmt::format(", which meet by the file {}", launch->file);
  if (launch->host.empty()) return f;
  f.what += fmt::format(", which meet at {}:{}", launch->host, launch->port);
  if (const std::string trouble = trouble_at(launch->host); !trouble.empty()) {
    f.there = false;
    f.cure = trouble;
  }
  return f;
}

}  // namespace tithe::cli
