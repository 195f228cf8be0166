// SPDX-License-Identifier: Apache-2.0
#pragma once
// A hello is what ranks tell each other before they are connected, over a transport between processes: who they are,
// which versions they speak, and where they are reached.
//
// UCX trusts an address: a damaged one ends the process. So nothing of a hello is used before its checksum, and then
// its tag, were right.
//
// Layout, little-endian   u32 magic | u16 hello version | u8 frame version | u8 ok | u32 world | u32 rank |
//                         u32 major | u32 minor, of the dialect | u64 system | u32 process | u64 host |
//                         u64 link rate | u64 cores | nonce, 32 bytes |
//                         an address, as the transport writes it, or the text of what went wrong |
//                         u64 XXH3-64 of all before it | HMAC-SHA256 by the job token of all before it, 32 bytes
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/secret.h"
#include "tithe/connect.h"

namespace tithe {

// All that a transport's ranks must have in common beyond tithe itself: for ucx, that library.
struct Dialect {
  std::uint32_t magic;    // the first bytes of a hello
  std::string_view name;  // in messages: "UCX"
  std::uint32_t major = 0, minor = 0;
};

struct Hello {
  Rank rank = 0;
  int world = 1;
  Status trouble = {};  // not ok: this rank could not open its end, and all ranks shall know
  std::vector<std::uint8_t> address;
  Secret nonce = {};            // fresh in each process and each meeting
  std::uint64_t link_rate = 0;  // bytes per second, of what leads to other hosts; 0: not known
};

// The process of a rank. `system` is equal for processes that see each other under the same pid.
struct ProcessId {
  std::uint64_t system = 0;
  std::uint32_t pid = 0;
  std::uint64_t host = 0;   // equal for processes of one machine with the same network: they share its links
  std::uint64_t cores = 0;  // equal for processes that share their cores (base/usable_cores.h)
};
ProcessId own_process_id();

struct HeardHello {
  std::span<const std::uint8_t> address;
  ProcessId process;
  Secret nonce = {};
  std::uint64_t link_rate = 0;
};

std::vector<std::uint8_t> write_hello(const Hello& hello, const Token& token, const Dialect& dialect);

// Reads the hello in `blob`, which must come from `rank`. kMismatch for another version, token, world or
// rank; kIo for a rank that could not open its end; kCorrupt for anything else. The peer is named in each.
Result<HeardHello> read_hello(std::span<const std::uint8_t> blob, Rank rank, int world, const Token& token,
                              const Dialect& dialect);

// The key of a job: nobody has it who lacks the token or did not read the hellos, and no earlier job had it.
Secret session_key(const Token& token, std::span<const HeardHello> hellos);

// The exchange of hellos, which a rank in trouble takes part in as well, so that nobody waits for it.
struct Introduced {
  std::vector<std::vector<std::uint8_t>> blobs;  // what the hellos point into
  std::vector<HeardHello> hellos;                // in rank order; empty hellos in a world of one
  Secret key = {};
  Hosts hosts = {};
  CoresHere cores = {};
  std::uint64_t link_rate = 0;  // the least of all; 0: some rank does not know, or there is but one host
};
Result<Introduced> introduce(const ConnectOptions& connect, Hello mine, const Dialect& dialect);

}  // namespace tithe
