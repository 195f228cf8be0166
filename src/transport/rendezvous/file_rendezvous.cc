// SPDX-License-Identifier: Apache-2.0
// Rendezvous over files: each rank writes one file, replaces it by rename, and reads the files of the other ranks. The
// files are private, since the job's key is derived from their content.
//
// Layout   u32 magic | u32 world | u32 rank | u8 done | u64 nonce | u64 seen | blob
//
// `seen` is a hash over (nonce, blob) of all ranks as this rank has read them. A rank is finished when all files have
// the hash that it computed itself. Files of an earlier job have other nonces, so their hash differs. A finished rank
// sets `done`, and removes its file once all other ranks have set `done`.
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "base/bytes.h"
#include "base/rng.h"
#include "base/secret.h"
#include "transport/rendezvous/private_file.h"

namespace tithe::rendezvous {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x464d5454;  // "TTMF" in file order
constexpr std::size_t kHeaderBytes = 29;
constexpr std::chrono::milliseconds kFilePause{10};
constexpr std::chrono::seconds kLongestFarewell{10};

struct Note {
  bool there = false;
  bool done = false;
  Status refused = {};  // why the existing file was not read
  std::uint32_t world = 0;
  std::uint64_t nonce = 0;
  std::uint64_t seen = 0;
  Blob blob;
};

fs::path path_of(const Launch& launch, Rank rank) {
  const fs::path base(launch.file);
  std::error_code ignored;
  if (fs::is_directory(base, ignored)) return base / fmt::format("tithe.{}", rank);
  return fs::path(launch.file + fmt::format(".{}", rank));
}

// `owner` is the owner of this rank's own file, which on some network file systems is not the writing user.
Note read_note(const fs::path& path, Rank rank, uid_t owner) {
  Note note;
  const Result<std::optional<Blob>> there = read_private(path, kHeaderBytes + kMaxBlobBytes, owner);
  if (!there.ok()) {
    note.refused = {there.status().code(), there.status().what(), rank};
    return note;
  }
  if (!*there || (*there)->size() < kHeaderBytes) return note;
  const Blob& bytes = **there;
  const std::uint8_t* p = bytes.data();
  if (wire::get<std::uint32_t>(p) != kMagic ||
      wire::get<std::uint32_t>(p + 8) != static_cast<std::uint32_t>(rank))
    return note;
  note.there = true;
  note.world = wire::get<std::uint32_t>(p + 4);
  note.done = p[12] != 0;
  note.nonce = wire::get<std::uint64_t>(p + 13);
  note.seen = wire::get<std::uint64_t>(p + 21);
  note.blob.assign(p + kHeaderBytes, p + bytes.size());
  return note;
}

Status write_note(const fs::path& path, Rank rank, const Note& note, uid_t* owner = nullptr) {
  std::vector<std::uint8_t> bytes(kHeaderBytes);
  wire::put(&bytes[0], kMagic);
  wire::put(&bytes[4], note.world);
  wire::put(&bytes[8], static_cast<std::uint32_t>(rank));
  bytes[12] = note.done;
  wire::put(&bytes[13], note.nonce);
  wire::put(&bytes[21], note.seen);
  const fs::path fresh(path.string() + fmt::format(".{:016x}.new", note.nonce));
  bytes.insert(bytes.end(), note.blob.begin(), note.blob.end());
  std::error_code failed, ignored;
  Status s = write_private(fresh, bytes, owner);
  if (s.ok()) {
    fs::rename(fresh, path, failed);
    if (!failed) return {};
    s = {Code::kIo, fmt::format("cannot write {}: {}", path.string(), failed.message())};
  }
  fs::remove(fresh, ignored);
  return s;
}

std::uint64_t hash_of(const std::vector<Note>& notes) {
  std::uint64_t h = 0;
  for (const Note& n : notes) {
    h = mix64(h ^ n.nonce) + n.blob.size();
    for (const std::uint8_t b : n.blob) h = mix64(h + b);
  }
  return h | 1;  // 0 means that a rank has not read all files
}

// The reason why the ranks did not agree in time. Ranks that came and gave up earlier are not reported.
Status who_differs(const Launch& launch, const std::vector<std::uint32_t>& worlds,
                   const std::vector<fs::path>& paths) {
  std::vector<Rank> missing;
  for (std::size_t r = 0; r < worlds.size(); ++r) {
    if (worlds[r] == 0) missing.push_back(static_cast<Rank>(r));
    if (worlds[r] != 0 && worlds[r] != static_cast<std::uint32_t>(launch.world))
      return {
          Code::kMismatch,
          fmt::format(
              "rank {} was started with world size {}, this rank with {}; if another job left {}, remove it",
              r, worlds[r], launch.world, paths[r].string()),
          static_cast<int>(r)};
  }
  if (!missing.empty()) return missing_ranks_error(missing, launch);
  return {Code::kTimeout, fmt::format("all ranks reached {}, but did not agree on their addresses in time: "
                                      "check that the file system is not slow",
                                      launch.file)};
}

}  // namespace

Result<std::vector<Blob>> over_files(const Launch& launch, ByteView mine) {
  const auto deadline = Clock::now() + launch.timeout;
  const auto me = static_cast<std::size_t>(launch.rank);
  const auto world = static_cast<std::size_t>(launch.world);
  std::vector<fs::path> paths;
  for (Rank r = 0; r < launch.world; ++r) paths.push_back(path_of(launch, r));
  std::uint8_t nonce[8];
  TITHE_TRY(fill_random(nonce));
  std::vector<Note> notes(world);
  notes[me] = {.there = true,
               .done = false,
               .refused = {},
               .world = static_cast<std::uint32_t>(launch.world),
               .nonce = wire::get<std::uint64_t>(nonce),
               .seen = 0,
               .blob = {mine.begin(), mine.end()}};
  uid_t owner = 0;
  TITHE_TRY(write_note(paths[me], launch.rank, notes[me], &owner));

  std::uint64_t agreed = 0;
  std::vector<std::uint32_t> worlds(world);  // the world size in each rank's last file; 0: none was read
  for (; agreed == 0; std::this_thread::sleep_for(kFilePause)) {
    bool all = true;
    for (std::size_t r = 0; r < world; ++r) {
      if (r != me) notes[r] = read_note(paths[r], static_cast<Rank>(r), owner);
      if (!notes[r].refused.ok()) {
        std::error_code none;
        fs::remove(paths[me], none);
        return notes[r].refused;
      }
      if (notes[r].there) worlds[r] = notes[r].world;
      all = all && notes[r].there && notes[r].world == notes[me].world;
    }
    const std::uint64_t hash = all ? hash_of(notes) : 0;
    std::error_code ignored;
    // An earlier rendezvous may have removed the file.
    if (hash != notes[me].seen || !fs::exists(paths[me], ignored)) {
      notes[me].seen = hash;
      TITHE_TRY(write_note(paths[me], launch.rank, notes[me]));
    }
    for (const Note& n : notes) all = all && n.seen == hash;
    if (all) {
      agreed = hash;
      break;
    }
    const bool withdrawn = launch.interrupted && launch.interrupted();
    if (withdrawn || Clock::now() >= deadline) {
      fs::remove(paths[me], ignored);
      if (withdrawn) return cancelled_error();
      return who_differs(launch, worlds, paths);
    }
  }

  std::vector<Blob> blobs;
  for (Note& n : notes) blobs.push_back(n.blob);
  notes[me].done = true;
  TITHE_TRY(write_note(paths[me], launch.rank, notes[me]));
  const auto farewell = std::min(deadline, Clock::now() + kLongestFarewell);
  for (bool waiting = true; waiting && Clock::now() < farewell;) {
    if (launch.interrupted && launch.interrupted()) break;
    waiting = false;
    for (std::size_t r = 0; r < world && !waiting; ++r) {
      const Note n = r == me ? Note{} : read_note(paths[r], static_cast<Rank>(r), owner);
      waiting = n.there && !n.done && n.seen == agreed;
    }
    if (waiting) std::this_thread::sleep_for(kFilePause);
  }
  std::error_code ignored;
  fs::remove(paths[me], ignored);
  return blobs;
}

}  // namespace tithe::rendezvous
