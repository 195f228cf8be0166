// SPDX-License-Identifier: Apache-2.0
// Writes, reads and exchanges PeerInfos. A reader checks in this order: magic number and version, length, checksum,
// tag, and only then the fields.
#include "transport/peer_info.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

constexpr std::uint16_t kVersion = 6;
constexpr std::size_t kAtNonce = 60;
constexpr std::size_t kHeaderBytes = kAtNonce + kSecretBytes;
constexpr std::size_t kEndBytes = 8 + kSecretBytes;  // checksum and tag
constexpr std::size_t kMaxText = 1000;

Secret tag_of(std::span<const std::uint8_t> covered, const Token& token) {
  return derive(token, "tithe hello", {covered});
}

}  // namespace

ProcessId own_process_id() {
  // Hashes the kernel's boot id together with a namespace. A kernel without a boot id contributes its host name.
  std::string machine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  char name[256] = {};
  if (machine.empty() && gethostname(name, sizeof name - 1) == 0) machine = name;
  const auto hash = [&](const std::string& where) {
    std::uint64_t h = 1;
    for (const char c : machine + where) h = mix64(h ^ static_cast<unsigned char>(c));
    return h;
  };
  const auto within = [&](const char* space) {
    struct stat ns {};
    return hash(stat(space, &ns) == 0 ? fmt::format("/{}", ns.st_ino) : std::string());
  };
  return {.system = within("/proc/self/ns/pid"),
          .pid = static_cast<std::uint32_t>(getpid()),
          .host = within("/proc/self/ns/net"),
          .cores = hash("/cores " + which_cores())};
}

std::vector<std::uint8_t> write_peer_info(const PeerInfo& info, const Token& token,
                                          const TransportVersion& version) {
  const std::string error = printable(info.error.what(), kMaxText);
  const std::size_t body = info.error.ok() ? info.address.size() : error.size();
  std::vector<std::uint8_t> blob(kHeaderBytes + body + kEndBytes);
  wire::put(&blob[0], version.magic);
  wire::put(&blob[4], kVersion);
  blob[6] = kFrameVersion;
  blob[7] = info.error.ok();
  wire::put(&blob[8], static_cast<std::uint32_t>(info.world));
  wire::put(&blob[12], static_cast<std::uint32_t>(info.rank));
  wire::put(&blob[16], version.major);
  wire::put(&blob[20], version.minor);
  const ProcessId own = own_process_id();
  wire::put(&blob[24], own.system);
  wire::put(&blob[32], own.pid);
  wire::put(&blob[36], own.host);
  wire::put(&blob[44], info.link_rate);
  wire::put(&blob[52], own.cores);
  if (body > 0)
    std::memcpy(&blob[kHeaderBytes],
                info.error.ok() ? static_cast<const void*>(info.address.data()) : error.data(), body);
  std::memcpy(&blob[kAtNonce], info.nonce.data(), info.nonce.size());
  std::uint8_t* end = &blob[kHeaderBytes + body];
  wire::put(end, static_cast<std::uint64_t>(XXH3_64bits(blob.data(), kHeaderBytes + body)));
  const Secret tag = tag_of(std::span(blob).first(kHeaderBytes + body + 8), token);
  std::memcpy(end + 8, tag.data(), tag.size());
  return blob;
}

Result<ReceivedPeerInfo> read_peer_info(std::span<const std::uint8_t> blob, Rank rank, int world,
                                        const Token& token, const TransportVersion& version) {
  const auto wrong = [&](Code code, const std::string& what) {
    return Status(code, fmt::format("rank {}: {}", rank, what), rank);
  };
  if (blob.size() < 8 || wire::get<std::uint32_t>(&blob[0]) != version.magic)
    return wrong(Code::kCorrupt, "its address blob has another transport's format");
  if (const auto v = wire::get<std::uint16_t>(&blob[4]); v != kVersion || blob[6] != kFrameVersion)
    return wrong(Code::kMismatch, fmt::format("uses transport version {} and frame version {}, this rank "
                                              "uses {} and {}: install the same tithe on all ranks",
                                              v, blob[6], kVersion, kFrameVersion));
  if (blob.size() <= kHeaderBytes + kEndBytes) return wrong(Code::kCorrupt, "its address blob is truncated");
  const auto end = blob.last(kEndBytes);
  if (wire::get<std::uint64_t>(end.data()) != XXH3_64bits(blob.data(), blob.size() - kEndBytes))
    return wrong(Code::kCorrupt, "its address blob was damaged in transit");
  if (!equal_secrets(tag_of(blob.first(blob.size() - kSecretBytes), token), end.subspan(8)))
    return wrong(Code::kMismatch,
                 "has another job token than this rank, or is a process of another job: set the same "
                 "TITHE_TOKEN on all ranks");
  if (const auto w = wire::get<std::uint32_t>(&blob[8]); w != static_cast<std::uint32_t>(world))
    return wrong(Code::kMismatch, fmt::format("was started with world size {}, this rank with {}", w, world));
  if (const auto r = wire::get<std::uint32_t>(&blob[12]); r != static_cast<std::uint32_t>(rank))
    return wrong(Code::kMismatch, fmt::format("identifies itself as rank {}", r));
  const auto body = blob.subspan(kHeaderBytes, blob.size() - kHeaderBytes - kEndBytes);
  if (blob[7] != 1)
    return wrong(Code::kIo, printable({reinterpret_cast<const char*>(body.data()), body.size()}, kMaxText));
  const auto major = wire::get<std::uint32_t>(&blob[16]), minor = wire::get<std::uint32_t>(&blob[20]);
  if (major != version.major || minor != version.minor)
    return wrong(Code::kMismatch, fmt::format("runs {} {}.{}, this rank runs {}.{}", version.name, major,
                                              minor, version.major, version.minor));
  ReceivedPeerInfo heard{body,
                         {.system = wire::get<std::uint64_t>(&blob[24]),
                          .pid = wire::get<std::uint32_t>(&blob[32]),
                          .host = wire::get<std::uint64_t>(&blob[36]),
                          .cores = wire::get<std::uint64_t>(&blob[52])},
                         {},
                         wire::get<std::uint64_t>(&blob[44])};
  std::memcpy(heard.nonce.data(), &blob[kAtNonce], heard.nonce.size());
  return heard;
}

Secret session_key(const Token& token, std::span<const ReceivedPeerInfo> infos) {
  std::vector<std::uint8_t> nonces;
  for (const ReceivedPeerInfo& h : infos) nonces.insert(nonces.end(), h.nonce.begin(), h.nonce.end());
  // The key needs both: the token, and the nonces from the PeerInfos.
  return derive(derive(token, "tithe token", {}), "tithe job", {nonces});
}

Result<PeerTable> exchange_peer_info(const ConnectOptions& connect, PeerInfo mine,
                                     const TransportVersion& version) {
  const auto [rank, world] = std::pair(connect.rank, connect.world);
  PeerTable all;
  all.infos.resize(static_cast<std::size_t>(world));
  mine.rank = rank;
  mine.world = world;
  TITHE_TRY(fill_random(mine.nonce));
  if (world > 1) {
    Result<std::vector<std::vector<std::uint8_t>>> blobs =
        connect.all_gather(write_peer_info(mine, connect.token, version));
    if (!mine.error.ok()) return mine.error;
    if (!blobs.ok()) return blobs.status();
    all.blobs = std::move(*blobs);
    if (all.blobs.size() != all.infos.size())
      return Status(Code::kInvalid, fmt::format("the exchange returned {} addresses for world size {}",
                                                all.blobs.size(), world));
    for (Rank r = 0; r < world; ++r) {
      const auto at = static_cast<std::size_t>(r);
      Result<ReceivedPeerInfo> info = read_peer_info(all.blobs[at], r, world, connect.token, version);
      if (!info.ok()) return info.status();
      all.infos[at] = *info;
    }
    if (all.infos[static_cast<std::size_t>(rank)].nonce != mine.nonce)
      return Status(Code::kCorrupt,
                    "the exchange returned another address blob for this rank than this rank passed");
  }
  if (!mine.error.ok()) return mine.error;
  std::vector<std::uint64_t> host_of_rank;
  for (const ReceivedPeerInfo& h : all.infos) host_of_rank.push_back(h.process.host);
  all.hosts = Hosts::of(host_of_rank);
  const ReceivedPeerInfo& own = all.infos[static_cast<std::size_t>(rank)];
  const auto share = std::ranges::count_if(
      all.infos, [&](const ReceivedPeerInfo& h) { return h.process.cores == own.process.cores; });
  all.cores = {usable_cores(), static_cast<int>(share)};
  if (all.hosts.count(world) > 1)
    all.link_rate = std::ranges::min(all.infos, {}, &ReceivedPeerInfo::link_rate).link_rate;
  all.key = session_key(connect.token, all.infos);
  return all;
}

}  // namespace tithe
