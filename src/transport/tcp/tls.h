// SPDX-License-Identifier: Apache-2.0
#pragma once
// TLS 1.3 on a connection, with certificates on both sides (OpenSSL).
//
//   both       each end shows a certificate of the job's authority, made for its rank; nothing is said before both
//              have passed
//   named      who is refused is refused with the reason: expired, of another authority, of another rank, missing
//   no_less    no older version of TLS, no session is resumed, nothing is renegotiated
//   bounded    what a stranger says is read into at most one record and 32 KiB of certificates
//
// The files come from a folder that `tithe keys new` made: ca.pem, rank<R>.pem, rank<R>.key. Keys of your own authority
// do, under the same names, if the certificate of rank 3 is for the name rank3.tithe.
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

// The credentials that a rank shows, and the authority that it believes.
class Credentials {
 public:
  // kInvalid: a file that is missing, no regular file, readable by others, or not for this rank as a server and as a
  // client; with its name and the cure.
  static Result<std::shared_ptr<const Credentials>> load(const std::string& folder, Rank rank);
  ssl_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

// One end of one connection: bytes of the caller's on one side, of the network on the other. Calls give how many bytes
// moved, 0 where the network must do something first, -1 where nothing moves any more and why() says why.
class TlsEnd {
 public:
  // How bytes go to the network and come from it: as send() and recv() that do not block.
  using Move = std::function<std::ptrdiff_t(std::uint8_t* bytes, std::size_t n)>;

  // A caller names the rank that it calls; a host passes -1, and asks is_rank() once that has named itself. `met`: the
  // other end has passed on another connection, so bytes that make no sense are damage from the first one on.
  TlsEnd(const Credentials& credentials, Rank calls, Move give, Move take, bool met = false);
  ~TlsEnd();
  TlsEnd(const TlsEnd&) = delete;
  TlsEnd& operator=(const TlsEnd&) = delete;

  std::ptrdiff_t shake();  // 1: both ends have passed, as far as this one can tell
  std::ptrdiff_t read(Bytes into);
  std::ptrdiff_t write(ByteView from);
  // Bytes that write() took and that have not left yet.
  std::size_t waits() const { return out_.size() - gone_; }
  bool flush();  // false: the network took nothing more and never will
  // True if read() may give something though nothing comes from the network.
  bool may_have_more() const { return !drained_; }
  bool is_rank(Rank rank) const;
  const Status& why() const { return why_; }

 private:
  friend struct Network;
  std::ptrdiff_t told(int result);
  Status failed() const;

  Move give_, take_;
  ssl_st* ssl_ = nullptr;
  std::vector<std::uint8_t> out_;  // from gone_ on: not with the network yet
  std::size_t gone_ = 0;
  const bool met_;
  bool drained_ = false;
  bool ended_ = false;  // the network has
  Status why_ = {};
};

}  // namespace tithe::tcp
