// SPDX-License-Identifier: Apache-2.0
#pragma once
// PeerInfo is the message that ranks exchange before they connect, in every transport between processes: their
// identity, their versions and their address.
//
// UCX trusts an address: a damaged one ends the process. So no field of a PeerInfo is used before its checksum and then
// its tag are verified.
//
// Layout, little-endian   u32 magic | u16 version | u8 frame version | u8 ok | u32 world | u32 rank |
//                         u32 major | u32 minor, of the transport | u64 system | u32 process | u64 host |
//                         u64 link rate | u64 cores | nonce, 32 bytes |
//                         if ok: the address, in the transport's own form; else the text of the error |
//                         u64 XXH3-64 of all preceding bytes | HMAC-SHA256 with the job token of all preceding bytes
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/secret.h"
#include "tithe/connect.h"

namespace tithe {

// The version that all ranks of a transport must share in addition to tithe's: for UCX, the version of its library.
struct TransportVersion {
  std::uint32_t magic;    // the first bytes of a PeerInfo
  std::string_view name;  // in messages: "UCX"
  std::uint32_t major = 0, minor = 0;
};

struct PeerInfo {
  Rank rank = 0;
  int world = 1;
  Status error = {};  // not ok: this rank failed to open its transport; all ranks get the error
  std::vector<std::uint8_t> address;
  Secret nonce = {};            // fresh in each process and each rendezvous
  std::uint64_t link_rate = 0;  // bytes per second of the link to other hosts; 0: unknown
};

// The process of a rank. `system` is equal for processes in the same pid namespace of the same machine.
struct ProcessId {
  std::uint64_t system = 0;
  std::uint32_t pid = 0;
  // equal for processes of one machine in the same network namespace: they share its links
  std::uint64_t host = 0;
  std::uint64_t cores = 0;  // equal for processes that share their CPU cores (base/usable_cores.h)
};
ProcessId own_process_id();

struct ReceivedPeerInfo {
  std::span<const std::uint8_t> address;
  ProcessId process;
  Secret nonce = {};
  std::uint64_t link_rate = 0;
};

std::vector<std::uint8_t> write_peer_info(const PeerInfo& info, const Token& token,
                                          const TransportVersion& version);

// Reads the PeerInfo in `blob`, which must come from `rank`. kMismatch for another version, token, world or rank; kIo
// if that rank failed to open its transport; kCorrupt for anything else. Every error names the peer.
Result<ReceivedPeerInfo> read_peer_info(std::span<const std::uint8_t> blob, Rank rank, int world,
                                        const Token& token, const TransportVersion& version);

// The key of a job, from the token and all PeerInfos: only ranks of this job can compute it, and each job has a new
// one.
Secret session_key(const Token& token, std::span<const ReceivedPeerInfo> infos);

// The result of the exchange. A rank that failed to open its transport takes part as well, so that no rank waits for
// it.
struct PeerTable {
  std::vector<std::vector<std::uint8_t>> blobs;  // the memory that `infos` point into
  std::vector<ReceivedPeerInfo> infos;           // in rank order; empty in a world of one
  Secret key = {};
  Hosts hosts = {};
  CoresHere cores = {};
  std::uint64_t link_rate = 0;  // the minimum of all ranks; 0: unknown on some rank, or there is one host
};
Result<PeerTable> exchange_peer_info(const ConnectOptions& connect, PeerInfo mine,
                                     const TransportVersion& version);

}  // namespace tithe
