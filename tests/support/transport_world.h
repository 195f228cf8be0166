// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as threads of one process, over any transport of transports.def.
#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tithe/connect.h"
#include "transport/tcp/keys.h"

namespace tithe::testing {

// The certificates of a job of 8 ranks, created once; they replace KEYS in a transport's text.
inline std::string with_keys(std::string how) {
  struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "tithe-keys-XXXXXX").string();
    bool made =
        mkdtemp(path.data()) != nullptr && tcp::make_keys(path + "/job", 8, std::chrono::hours(1)).ok();
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  const std::size_t at = how.find("KEYS");
  if (at == std::string::npos) return how;
  static const Folder folder;
  return how.replace(at, 4, folder.path + "/job");
}

// An AllGather between threads: one for all of them, used any number of times.
class ThreadGather {
 public:
  explicit ThreadGather(int world) : blobs_(static_cast<std::size_t>(world)) {}

  AllGather of(Rank rank) {
    return [this, rank](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
      std::unique_lock lock(mutex_);
      blobs_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
      if (++here_ == blobs_.size()) {
        here_ = 0;
        ++meetings_;
        all_.notify_all();
      } else {
        const int meeting = meetings_;
        all_.wait(lock, [&] { return meetings_ != meeting; });
      }
      return blobs_;
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<std::vector<std::uint8_t>> blobs_;
  std::size_t here_ = 0;
  int meetings_ = 0;
};

// Runs body(rank) on a thread per rank.
inline void run_ranks(int world, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank r = 0; r < world; ++r) threads.emplace_back(body, r);
  for (std::thread& t : threads) t.join();
}

// Opens one transport per rank, in threads. `how`: an open_transport argument, e.g. "loop" or "ucx:transports=tcp". A
// transport that fails to open is nullptr.
inline std::vector<std::unique_ptr<Transport>> open_world(std::string_view text, int world) {
  const std::string how = with_keys(std::string(text));
  std::vector<std::unique_ptr<Transport>> out(static_cast<std::size_t>(world));
  const Result<TransportChoice> choice = choose_transport(how);
  if (!choice.ok()) return out;
  if (choice->kind->open_threads != nullptr) return choice->kind->open_threads(world, {});
  ThreadGather gather(world);
  run_ranks(world, [&](Rank r) {
    Result<std::unique_ptr<Transport>> t =
        open_transport(how, {.rank = r, .world = world, .all_gather = gather.of(r)});
    if (t.ok()) out[static_cast<std::size_t>(r)] = std::move(*t);
  });
  return out;
}

// Every way in which the suites run transports: the examples of all that this build has, and tcp with certificates.
inline std::vector<std::string> transport_examples() {
  std::vector<std::string> out;
  for (const TransportKind* kind : all_transports())
    if (kind->usable().ok()) out.insert(out.end(), kind->examples.begin(), kind->examples.end());
  out.emplace_back("tcp:streams=2,tls=KEYS");
  return out;
}

// "ucx:transports=tcp" as a part of a test's name.
inline std::string in_a_name(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text;
}

}  // namespace tithe::testing
