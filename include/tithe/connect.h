// SPDX-License-Identifier: Apache-2.0
#pragma once
// How ranks find each other: from what launched them to a Transport. Launchers are the users' own (torchrun,
// mpirun, Slurm, a shell loop); tithe reads what they left in the environment and needs one exchange of
// addresses.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tithe/status.h"
#include "tithe/transport.h"

namespace tithe {

// Who this process is, and where rank 0 can be met.
struct Launch {
  Rank rank = 0;
  int world = 1;
  std::string host;  // of rank 0; empty when `file` is used
  int port = 0;
  std::string file;  // a path that all ranks can reach; empty when host and port are used
  std::chrono::milliseconds timeout{60'000};
};

// Reads, in this order: RANK/WORLD_SIZE (torchrun), OMPI_COMM_WORLD_*, PMI_*, SLURM_PROCID/SLURM_NTASKS for
// the place, MASTER_ADDR/MASTER_PORT or TITHE_FILE for the meeting point. kInvalid names the variable that is
// missing.
Result<Launch> launch_from_environment();

// Gives every rank the blobs of all ranks, in rank order. Called once, by all ranks.
using AllGather = std::function<Result<std::vector<std::vector<std::uint8_t>>>(ByteView mine)>;

// Over a small TCP service on rank 0 (host and port), or over files. kTimeout names the ranks that did not
// come.
AllGather meet(const Launch& launch);

// Ranks as threads of this process: one transport per rank, deterministic, for tests and simulation.
std::vector<std::unique_ptr<Transport>> open_loop(int world);

struct UcxOptions {
  std::string transports;  // UCX_TLS, e.g. "tcp"; empty: the environment's or UCX's own choice
  std::string devices;     // UCX_NET_DEVICES, e.g. "eth0"; empty likewise
  // A TCP connection without traffic whose other end answers nothing for so long is given up: the session's timeout.
  std::chrono::milliseconds silence{30'000};
};

// Shared memory, TCP or RDMA, through UCX. kMismatch if another rank speaks another version.
Result<std::unique_ptr<Transport>> open_ucx(Rank rank, int world, const AllGather& all_gather,
                                            const UcxOptions& options = {});

}  // namespace tithe
