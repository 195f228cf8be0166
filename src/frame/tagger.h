// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tags: a MAC that only ranks of a job can compute (docs/reference/format_keys.md, "Tag"; docs/reference/security.md).
//
//   known      GMAC with AES-256 (NIST SP 800-38D), 16 bytes; tag_test.cc compares it with a readable implementation
//   once       under one key no rank uses a number twice: Tags returns each number once
//   steady     tagging and checking allocate nothing
//
// Chosen by measurement among the MACs of libcrypto 3.0 (Xeon, AVX-512; 72 bytes and 8 MB): GMAC 213 ns and 16 GB/s,
// Poly1305 with one key per frame 434 ns and 13 GB/s, HMAC-SHA256 209 ns and 1.9 GB/s (it allocates), BLAKE2b 302 ns
// and 1.0 GB/s. `bench_codecs` has these rows.
#include <array>
#include <atomic>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/secret.h"
#include "tithe/seam/frame.h"

struct evp_cipher_ctx_st;

namespace tithe {

using Tag = std::array<std::uint8_t, kFrameTagBytes>;

// Computes tags under one key. One thread at a time.
class Tagger {
 public:
  explicit Tagger(const Secret& key);
  Tag tag(std::uint32_t source, std::uint64_t number, std::initializer_list<ByteView> pieces);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

// A rank's taggers and numbers: one Tagger per lane, one for control messages, and the numbers used so far.
class Tags {
 public:
  // `lanes` threads, and one more for control messages, may tag and check at the same time.
  Tags(ByteView session_key, int lanes);

  Tagger& lane(int lane) { return taggers_[static_cast<std::size_t>(lane)]; }
  Tagger& control() { return taggers_.back(); }
  std::uint64_t next() { return ++frames_; }
  std::uint64_t next_control() { return kControlNumber | ++controls_; }

  // Numbers of control messages have this bit set, so that they are counted separately from frames.
  static constexpr std::uint64_t kControlNumber = std::uint64_t{1} << 63;

 private:
  std::vector<Tagger> taggers_;
  std::atomic<std::uint64_t> frames_{0};
  std::atomic<std::uint64_t> controls_{0};
};

}  // namespace tithe
