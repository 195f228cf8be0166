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

// The secret of a job: whoever has it is a rank. Empty: none.
using Token = std::vector<std::uint8_t>;
inline constexpr std::size_t kLeastTokenBytes = 16;

// Who this process is, and where rank 0 can be met.
struct Launch {
  Rank rank = 0;
  int world = 1;
  std::string host;  // of rank 0; empty when `file` is used
  int port = 0;
  std::string file;  // a path that all ranks can reach; empty when host and port are used
  std::chrono::milliseconds timeout{60'000};
  Token token;             // at least 16 bytes; empty: none was given
  bool unguarded = false;  // without a token: meet anybody who comes to an address that others can reach
};

// Reads, in this order: RANK/WORLD_SIZE (torchrun), OMPI_COMM_WORLD_*, PMI_*, SLURM_PROCID/SLURM_NTASKS for
// the place, MASTER_ADDR/MASTER_PORT or TITHE_FILE for the meeting point, and the token as below. kInvalid names the
// variable that is missing.
Result<Launch> launch_from_environment();

// Reads TITHE_TOKEN (hexadecimal digits, at least 32 of them), else the file that TITHE_TOKEN_FILE names, which nobody
// but its owner may read; empty where neither is set. "none" in TITHE_TOKEN says that there shall be no token.
struct TokenGiven {
  Token token;
  bool unguarded = false;  // "none"
};
Result<TokenGiven> token_from_environment();

// Gives every rank the blobs of all ranks, in rank order. Called once, by all ranks.
using AllGather = std::function<Result<std::vector<std::vector<std::uint8_t>>>(ByteView mine)>;

// Over a small TCP service on rank 0 (host and port), or over files. kTimeout names the ranks that did not
// come. Both sides prove that they have the token before anything else is said, and what is said then is encrypted.
// Without a token, TCP is for addresses of this machine alone (127.0.0.1, ::1, localhost): kInvalid elsewhere, unless
// `unguarded` is set. Files are read where they belong to this user and nobody else may write to them.
AllGather meet(const Launch& launch);

// Ranks as threads of this process: one transport per rank, deterministic, for tests and simulation. They need no key;
// with one, frames are tagged as between processes.
std::vector<std::unique_ptr<Transport>> open_loop(int world, ByteView key = {});

struct UcxOptions {
  std::string transports;  // UCX_TLS, e.g. "tcp"; empty: the environment's or UCX's own choice
  std::string devices;     // UCX_NET_DEVICES, e.g. "eth0"; empty likewise
  Token token = {};        // empty: the key is made from what is exchanged alone, and as secret as that
  std::chrono::milliseconds timeout{60'000};  // for the exchange, as far as it takes one, and connecting
  // A TCP connection without traffic whose other end answers nothing for so long is given up: the session's timeout.
  std::chrono::milliseconds silence{30'000};
};

// Shared memory, TCP or RDMA, through UCX. kMismatch if another rank speaks another version or has another token.
Result<std::unique_ptr<Transport>> open_ucx(Rank rank, int world, const AllGather& all_gather,
                                            const UcxOptions& options = {});

}  // namespace tithe
