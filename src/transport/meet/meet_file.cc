// SPDX-License-Identifier: Apache-2.0
// Meeting over files: each rank keeps one file, replaced by rename, and reads those of the others.
//
// Layout   u32 magic | u32 world | u32 rank | u8 done | u64 nonce | u64 seen | blob
// seen is a hash over (nonce, blob) of all ranks as this rank read them. A rank is through when all files
// show the hash that it computed itself: files that an earlier job left behind have other nonces, so nobody
// is taken in by them. Then it says done, and removes its file when all others said so too.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "base/rng.h"
#include "transport/meet/meeting.h"

namespace tithe::meeting {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x464d5454;  // "TTMF" in file order
constexpr std::size_t kHeaderBytes = 29;
constexpr std::chrono::milliseconds kPause{10};
constexpr std::chrono::seconds kLongestFarewell{10};

struct Note {
  bool there = false;
  bool done = false;
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

Note read_note(const fs::path& path, Rank rank) {
  Note note;
  std::error_code none;
  const std::uintmax_t size = fs::file_size(path, none);
  if (none || size > kHeaderBytes + kMaxBlobBytes) return note;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes(size);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto n = static_cast<std::size_t>(in.gcount());
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (n < kHeaderBytes || wire::get<std::uint32_t>(p) != kMagic ||
      wire::get<std::uint32_t>(p + 8) != static_cast<std::uint32_t>(rank))
    return note;
  note.there = true;
  note.world = wire::get<std::uint32_t>(p + 4);
  note.done = p[12] != 0;
  note.nonce = wire::get<std::uint64_t>(p + 13);
  note.seen = wire::get<std::uint64_t>(p + 21);
  note.blob.assign(p + kHeaderBytes, p + n);
  return note;
}

Status write_note(const fs::path& path, Rank rank, const Note& note) {
  std::vector<std::uint8_t> bytes(kHeaderBytes);
  wire::put(&bytes[0], kMagic);
  wire::put(&bytes[4], note.world);
  wire::put(&bytes[8], static_cast<std::uint32_t>(rank));
  bytes[12] = note.done;
  wire::put(&bytes[13], note.nonce);
  wire::put(&bytes[21], note.seen);
  const fs::path fresh(path.string() + fmt::format(".{:016x}.new", note.nonce));
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.write(reinterpret_cast<const char*>(note.blob.data()), static_cast<std::streamsize>(note.blob.size()));
  out.close();
  if (out && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  const int why = errno;
  std::error_code ignored;
  fs::remove(fresh, ignored);
  return {Code::kIo, fmt::format("cannot write {}: {}", path.string(), std::strerror(why))};
}

std::uint64_t hash_of(const std::vector<Note>& notes) {
  std::uint64_t h = 0;
  for (const Note& n : notes) {
    h = mix64(h ^ n.nonce) + n.blob.size();
    for (const std::uint8_t b : n.blob) h = mix64(h + b);
  }
  return h | 1;  // never the 0 of a rank that has not seen all
}

// Why ranks did not agree in time. Those that came and gave up earlier than this one are not to blame.
Status who_differs(const Launch& launch, const std::vector<std::uint32_t>& worlds,
                   const std::vector<fs::path>& paths) {
  std::vector<Rank> missing;
  for (std::size_t r = 0; r < worlds.size(); ++r) {
    if (worlds[r] == 0) missing.push_back(static_cast<Rank>(r));
    if (worlds[r] != 0 && worlds[r] != static_cast<std::uint32_t>(launch.world))
      return {
          Code::kMismatch,
          fmt::format("rank {} was started with world size {}, this rank with {} (or {} is left over from "
                      "another job: remove it)",
                      r, worlds[r], launch.world, paths[r].string()),
          static_cast<int>(r)};
  }
  if (!missing.empty()) return nobody_from(missing, launch);
  return {
      Code::kTimeout,
      fmt::format("all ranks came to {}, but not to an agreement: is the file system slow?", launch.file)};
}

std::uint64_t random_nonce() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace

Result<std::vector<Blob>> over_files(const Launch& launch, ByteView mine) {
  const auto deadline = Clock::now() + launch.timeout;
  const auto me = static_cast<std::size_t>(launch.rank);
  const auto world = static_cast<std::size_t>(launch.world);
  std::vector<fs::path> paths;
  for (Rank r = 0; r < launch.world; ++r) paths.push_back(path_of(launch, r));
  std::vector<Note> notes(world);
  notes[me] = {.there = true,
               .done = false,
               .world = static_cast<std::uint32_t>(launch.world),
               .nonce = random_nonce(),
               .seen = 0,
               .blob = {mine.begin(), mine.end()}};
  TITHE_TRY(write_note(paths[me], launch.rank, notes[me]));

  std::uint64_t agreed = 0;
  std::vector<std::uint32_t> worlds(world);  // as each rank last said; 0: it never came
  for (; agreed == 0; std::this_thread::sleep_for(kPause)) {
    bool all = true;
    for (std::size_t r = 0; r < world; ++r) {
      if (r != me) notes[r] = read_note(paths[r], static_cast<Rank>(r));
      if (notes[r].there) worlds[r] = notes[r].world;
      all = all && notes[r].there && notes[r].world == notes[me].world;
    }
    const std::uint64_t hash = all ? hash_of(notes) : 0;
    std::error_code ignored;
    if (hash != notes[me].seen ||
        !fs::exists(paths[me], ignored)) {  // an earlier meeting may have removed it
      notes[me].seen = hash;
      TITHE_TRY(write_note(paths[me], launch.rank, notes[me]));
    }
    for (const Note& n : notes) all = all && n.seen == hash;
    if (all) {
      agreed = hash;
      break;
    }
    if (Clock::now() >= deadline) {
      fs::remove(paths[me], ignored);
      return who_differs(launch, worlds, paths);
    }
  }

  std::vector<Blob> blobs;
  for (Note& n : notes) blobs.push_back(n.blob);
  notes[me].done = true;
  TITHE_TRY(write_note(paths[me], launch.rank, notes[me]));
  const auto farewell = std::min(deadline, Clock::now() + kLongestFarewell);
  for (bool waiting = true; waiting && Clock::now() < farewell;) {
    waiting = false;
    for (std::size_t r = 0; r < world && !waiting; ++r) {
      const Note n = r == me ? Note{} : read_note(paths[r], static_cast<Rank>(r));
      waiting = n.there && !n.done && n.seen == agreed;
    }
    if (waiting) std::this_thread::sleep_for(kPause);
  }
  std::error_code ignored;
  fs::remove(paths[me], ignored);
  return blobs;
}

}  // namespace tithe::meeting
