// SPDX-License-Identifier: Apache-2.0
#pragma once
// TLS 1.3 on a connection, with certificates on both sides (OpenSSL).
//
//   - Each end shows a certificate that the job's authority has issued for its rank. No payload is sent before both
//     certificates are verified.
//   - A refusal gives the reason: expired, another authority, another rank, or missing.
//   - Older TLS versions, session resumption and renegotiation are disabled.
//   - Bytes of an unauthenticated peer take at most one record and 32 KiB of certificates.
//
// The files come from a folder that `tithe keys new` creates: ca.pem, rank<R>.pem, rank<R>.key. Keys of your own
// authority work under the same names if the certificate of rank 3 is issued for the name rank3.tithe.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/seam/transport.h"
#include "tithe/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tithe::tcp {

std::string certificate_name(Rank rank);  // "rank3.tithe"

// The certificate that a rank shows, and the authority that it trusts.
class Credentials {
 public:
  // kInvalid, with the file's name and the cure, if a file is missing, is not a regular file, is readable by others, or
  // is not valid for this rank as both server and client.
  static Result<std::shared_ptr<const Credentials>> load(const std::string& folder, Rank rank);
  ssl_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

// One end of a TLS connection, between the caller's bytes and the network's. Calls return the number of bytes moved; 0
// if the network must make progress first; -1 if nothing can move any more, with the reason in error().
class TlsEnd {
 public:
  // Sends bytes to the network or receives bytes from it, like send() and recv() on a non-blocking socket.
  using Move = std::function<std::ptrdiff_t(std::uint8_t* bytes, std::size_t n)>;

  // A client passes the rank that it connects to. A server passes -1 and calls is_rank() after the client has named its
  // rank. `authenticated`: the other end was verified on another connection, so even its first invalid bytes count as
  // damage.
  TlsEnd(const Credentials& credentials, Rank calls, Move send, Move receive, bool authenticated = false);
  ~TlsEnd();
  TlsEnd(const TlsEnd&) = delete;
  TlsEnd& operator=(const TlsEnd&) = delete;

  std::ptrdiff_t handshake();  // 1: the handshake is complete, as far as this end can tell
  std::ptrdiff_t read(Bytes into);
  std::ptrdiff_t write(ByteView from);
  // Bytes that write() accepted and the network has not.
  std::size_t unsent() const { return out_.size() - out_sent_; }
  bool flush();  // false: the network can take nothing more
  // True if read() can return bytes without any new bytes from the network.
  bool can_read_more() const { return !drained_; }
  bool is_rank(Rank rank) const;
  const Status& error() const { return error_; }

 private:
  friend struct Network;
  std::ptrdiff_t wait_or_fail(int result);
  Status failed() const;

  Move send_, receive_;
  ssl_st* ssl_ = nullptr;
  std::vector<std::uint8_t> out_;  // from out_sent_ on: not given to the network yet
  std::size_t out_sent_ = 0;
  const bool authenticated_;
  bool drained_ = false;
  bool ended_ = false;  // the network reported the end of the connection
  Status error_ = {};
};

}  // namespace tithe::tcp
