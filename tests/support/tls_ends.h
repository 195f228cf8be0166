// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two ends of a connection of TLS, with the network between them played by hand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/keys.h"
#include "transport/tcp/tls.h"

namespace tithe::tcp::tls_ends {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() { made_ = mkdtemp(path_.data()) != nullptr; }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  // The certificates of a job of three, in a folder of this name.
  std::string job(const std::string& name, std::chrono::seconds lasting = std::chrono::hours(1)) const {
    const std::string folder = path_ + "/" + name;
    const Status s = make_keys(folder, 3, lasting);
    EXPECT_TRUE(made_ && s.ok()) << s.what();
    return folder;
  }
  std::string copy(const std::string& of, const std::string& name) const {
    const std::string folder = path_ + "/" + name;
    fs::copy(of, folder);
    return folder;
  }

 private:
  std::string path_ = (fs::temp_directory_path() / "tithe-tls-XXXXXX").string();
  bool made_ = false;
};

inline const Folder& folder() {
  static const Folder kFolder;
  return kFolder;
}

inline std::shared_ptr<const Credentials> credentials(const std::string& of, Rank rank) {
  Result<std::shared_ptr<const Credentials>> loaded = Credentials::load(of, rank);
  EXPECT_TRUE(loaded.ok()) << loaded.status().what();
  return loaded.ok() ? *loaded : nullptr;
}

// Bytes on their way in one direction.
struct RelayedBytes {
  std::deque<std::uint8_t> bytes;
  std::vector<std::uint8_t> seen;  // all that ever were
  TlsEnd::Move give() {
    return [this](std::uint8_t* from, std::size_t n) {
      bytes.insert(bytes.end(), from, from + n);
      seen.insert(seen.end(), from, from + n);
      return static_cast<std::ptrdiff_t>(n);
    };
  }
  TlsEnd::Move take() {
    return [this](std::uint8_t* into, std::size_t n) -> std::ptrdiff_t {
      if (bytes.empty()) {
        errno = EAGAIN;
        return -1;
      }
      n = std::min(n, bytes.size());
      std::copy_n(bytes.begin(), n, into);
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      return static_cast<std::ptrdiff_t>(n);
    };
  }
};

struct Connection {
  Connection(const Credentials& of_caller, const Credentials& of_host, Rank calls)
      : caller(of_caller, calls, there.give(), back.take()), host(of_host, -1, back.give(), there.take()) {}
  // Exchanges data until both sides are idle.
  std::pair<std::ptrdiff_t, std::ptrdiff_t> handshake() {
    std::ptrdiff_t a = 0, b = 0;
    for (int k = 0; k < 10; ++k) {
      a = caller.handshake();
      b = host.handshake();
    }
    return {a, b};
  }
  RelayedBytes there, back;
  TlsEnd caller, host;
};

inline std::vector<std::uint8_t> text(std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>("gradient"[i % 8]);
  return out;
}

}  // namespace tithe::tcp::tls_ends
