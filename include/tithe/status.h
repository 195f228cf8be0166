// SPDX-License-Identifier: Apache-2.0
#pragma once
// Three kinds of trouble, three answers (docs/reference/errors.md):
//   the caller is wrong    -> Status kInvalid / kTooSmall / kUnsupported, nothing was written
//   the world failed       -> Status kCorrupt / kMismatch / kPeerLost / kTimeout / kIo / kCancelled: says which
//                             peer and round, and residuals are as they were before the round
//   we are wrong           -> TITHE_ASSERT, which stops a debug build and is gone from a release build
#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#define TITHE_ASSERT(cond) assert(cond)
#define TITHE_TRY(expr)                                   \
  do {                                                    \
    if (::tithe::Status s_ = (expr); !s_.ok()) return s_; \
  } while (0)

namespace tithe {

enum class Code : std::uint8_t {
  kOk,
  kInvalid,      // an argument is wrong
  kTooSmall,     // a buffer is smaller than bound(n)
  kUnsupported,  // understood, but not to be had here
  kCorrupt,      // bytes that no encoder wrote
  kMismatch,     // ranks disagree on version, sizes, codec or plan
  kPeerLost,     // a peer's process or connection is gone
  kTimeout,      // a peer sent nothing for the session's timeout
  kIo,           // the operating system or the network library refused
  kCancelled,    // this operation was withdrawn, or its session is closed
};

std::string_view name(Code code);  // "invalid", "peer_lost", ...: as in docs/reference/errors.md

class [[nodiscard]] Status {
 public:
  static constexpr int kNoPeer = -1;

  Status() = default;
  Status(Code code, std::string what, int peer = kNoPeer)
      : code_(code), peer_(peer), what_(std::move(what)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  int peer() const { return peer_; }  // the rank that is to blame, or kNoPeer
  const std::string& what() const { return what_; }

 private:
  Code code_ = Code::kOk;
  int peer_ = kNoPeer;
  std::string what_;
};

// A value, or the Status with the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}                                         // NOLINT(*-explicit-*)
  Result(Status why) : v_(std::move(why)) { TITHE_ASSERT(!std::get<1>(v_).ok()); }  // NOLINT(*-explicit-*)
  bool ok() const { return v_.index() == 0; }
  T& operator*() {
    TITHE_ASSERT(ok());
    return std::get<0>(v_);
  }
  const T& operator*() const {
    TITHE_ASSERT(ok());
    return std::get<0>(v_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }
  Status status() const { return ok() ? Status{} : std::get<1>(v_); }

 private:
  std::variant<T, Status> v_;
};

}  // namespace tithe
