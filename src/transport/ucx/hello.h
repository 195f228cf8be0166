// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks tell each other before they are connected: who they are, which versions they speak, and where
// their UCX worker is reached.
//
// UCX trusts an address: a damaged one ends the process. So nothing of a hello is used before its checksum, and then
// its tag, were right.
//
// Layout, little-endian   u32 magic | u16 hello version | u8 frame version | u8 ok | u32 world | u32 rank |
//                         u32 UCX major | u32 UCX minor | u64 system | u32 process | nonce, 32 bytes |
//                         UCX worker address, or the text of what went wrong |
//                         u64 XXH3-64 of all before it | HMAC-SHA256 by the job token of all before it, 32 bytes
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/secret.h"
#include "tithe/connect.h"

namespace tithe::ucx {

struct Hello {
  Rank rank = 0;
  int world = 1;
  Status trouble = {};  // not ok: this rank could not open UCX, and all ranks shall know
  std::vector<std::uint8_t> address;
  Secret nonce = {};  // fresh in each process and each meeting
};

// Where a rank runs: `system` is the same for processes that see each other under the same process numbers.
struct Home {
  std::uint64_t system = 0;
  std::uint32_t process = 0;
};
Home my_home();

struct HeardHello {
  std::span<const std::uint8_t> address;
  Home home;
  Secret nonce = {};
};

std::vector<std::uint8_t> write_hello(const Hello& hello, const Token& token);

// What `blob` says, which must come from `rank`. kMismatch for another version, token, world or
// rank; kIo for a rank that could not open UCX; kCorrupt for anything else. The peer is named in each.
Result<HeardHello> read_hello(std::span<const std::uint8_t> blob, Rank rank, int world, const Token& token);

// The key of a job: nobody has it who lacks the token or did not read the hellos, and no earlier job had it.
Secret session_key(const Token& token, std::span<const HeardHello> hellos);

}  // namespace tithe::ucx
