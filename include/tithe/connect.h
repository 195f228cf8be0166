// SPDX-License-Identifier: Apache-2.0
#pragma once
// Opens a rank's Transport in three steps: identity of the rank (Launch), one exchange of addresses (AllGather), and a
// transport by name (open_transport). Users bring their launcher (torchrun, mpirun, Slurm, a shell loop); tithe reads
// the launcher's environment variables.
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/seam/transport.h"
#include "tithe/status.h"

namespace tithe {

// The secret of a job: whoever has it is a rank. Empty: none.
using Token = std::vector<std::uint8_t>;
inline constexpr std::size_t kMinTokenBytes = 16;

// This process's rank, and the address of rank 0.
struct Launch {
  Rank rank = 0;
  int world = 1;
  std::string host;  // of rank 0; empty when `file` is used
  int port = 0;
  std::string file;  // a path that all ranks can reach; empty when host and port are used
  std::chrono::milliseconds timeout{60'000};
  Token token;             // at least 16 bytes; empty: none was given
  bool unguarded = false;  // without a token: accept any process at an address that others can reach
  // Called at least ten times a second on the waiting thread; if it returns true, the rendezvous ends: kCancelled.
  std::function<bool()> interrupted = {};
};

// Reads, in this order: RANK/WORLD_SIZE (torchrun), OMPI_COMM_WORLD_*, PMI_*, SLURM_PROCID/SLURM_NTASKS for
// the place, MASTER_ADDR/MASTER_PORT or TITHE_FILE for the meeting point, and the token as below. kInvalid names the
// variable that is missing.
Result<Launch> launch_from_environment();

// Reads TITHE_TOKEN (at least 32 hexadecimal digits), else the file that TITHE_TOKEN_FILE names, which only its owner
// may read. Empty if neither is set. TITHE_TOKEN=none: the job has no token.
struct TokenGiven {
  Token token;
  bool unguarded = false;  // "none"
};
Result<TokenGiven> token_from_environment();

// Gives every rank the blobs of all ranks, in rank order. Called once, by all ranks.
using AllGather = std::function<Result<std::vector<std::vector<std::uint8_t>>>(ByteView mine)>;

// The rendezvous, over a small TCP service on rank 0 (host and port) or over files. kTimeout names the missing
// ranks. Both sides prove that they have the token before they exchange anything else, and the exchange is encrypted.
// Without a token, TCP is for addresses of this machine alone (127.0.0.1, ::1, localhost): kInvalid elsewhere, unless
// `unguarded` is set. A file is read only if it belongs to this user and no other user may write to it.
AllGather open_rendezvous(const Launch& launch);

// ---- Transports, as transports.def lists them

// Everything that a transport between processes needs to open.
struct ConnectOptions {
  Rank rank = 0;
  int world = 1;
  AllGather all_gather =
      {};  // called once, also by a rank that cannot open its transport, so no rank waits for it
  // Empty: the job's key is derived from the exchanged blobs only, and is as secret as they are.
  Token token = {};
  std::chrono::milliseconds timeout{60'000};  // for the exchange, as far as it takes one, and connecting
  // The session's timeout: a connection is given up if its other end answers nothing for this time.
  std::chrono::milliseconds silence{30'000};
  std::function<bool()> interrupted = {};  // as Launch::interrupted, while ranks connect
};
// With the launch's rank, world, token, timeout and rendezvous.
ConnectOptions connect_options(const Launch& launch);

// One option behind the colon of a text such as `ucx:transports=tcp,devices=eth0`.
struct TransportOption {
  std::string_view name;
  std::string_view fallback;
  std::string_view doc;  // one line
};

// A transport's findings on this machine, under the environment's variables.
struct TransportProbe {
  std::string version = {};               // of the library underneath; empty: none
  std::vector<std::string> devices = {};  // by which it can reach other ranks: "tcp/eth0"
  // Requirements of many jobs that are missing here, each with the cure.
  std::vector<std::string> problems = {};
};

// One line of transports.def: a constant `<name>_transport` in src/transport/<name>/.
struct TransportKind {
  std::string_view name;  // as Transport::kind() returns it
  std::string_view doc;   // one line
  std::span<const TransportOption> options;
  std::span<const std::string_view>
      examples;        // texts for open_transport that differ in kind; the suites run each
  Status (*usable)();  // not ok: why this build or machine cannot have it, and the cure
  TransportProbe (*probe)();
  // Between processes, collective; `values` stand in the order of `options`. nullptr: it has ranks as threads alone.
  Result<std::unique_ptr<Transport>> (*open)(const ConnectOptions&, std::span<const std::string> values);
  // Ranks as threads of this process, one transport each. nullptr: `open` is for threads too.
  std::vector<std::unique_ptr<Transport>> (*open_threads)(int world, ByteView key);
  // True: all messages of a peer arrive on connections whose maker has proved that it has the job's key. So bytes with
  // a wrong tag are from a peer and were changed in transit; they are never a stranger's.
  bool proves = false;
  // The checks of `open` that need no other rank and have no effect. nullptr: none.
  Status (*check)(Rank rank, std::span<const std::string> values) = nullptr;
};

std::span<const TransportKind* const> all_transports();      // in the order of transports.def
const TransportKind* find_transport(std::string_view name);  // nullptr: no such name

struct TransportChoice {
  const TransportKind* kind = nullptr;
  std::vector<std::string> values = {};  // of kind->options
  std::string why = {};
};
// A name, and options behind a colon; a comma ends a value only where `name=` follows: `ucx:transports=tcp,self`. Empty
// or "auto": the first of the list that is usable and goes between processes. kInvalid, with the nearest known name.
Result<TransportChoice> choose_transport(std::string_view text);

// The argument checks of open_transport() on rank `rank`: name, options and their values. Opens nothing.
Status check_transport(std::string_view text, Rank rank);

// Collective. kMismatch names a rank that opens another transport, or has another version or another token.
Result<std::unique_ptr<Transport>> open_transport(std::string_view text, const ConnectOptions& options);

// The transport `loop`: ranks as threads, deterministic, for tests and simulation. They need no key; with one, frames
// are tagged as between processes. Each rank has a host of its own, unless `hosts` says otherwise.
std::vector<std::unique_ptr<Transport>> open_loop(int world, ByteView key = {}, const Hosts& hosts = {});

}  // namespace tithe
