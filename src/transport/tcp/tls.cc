// SPDX-License-Identifier: Apache-2.0
// OpenSSL without sockets: a custom BIO connects it to the wire. Written records accumulate in out_ until the network
// takes them; reads come straight from the socket.
#include "transport/tcp/tls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"

namespace tithe::tcp {

// The network side of OpenSSL: written records go to out_, and reads call receive_.
struct Network {
  static TlsEnd* of(BIO* bio) { return static_cast<TlsEnd*>(BIO_get_data(bio)); }

  // Records accumulate until write() returns, so that one system call sends several.
  static int write(BIO* bio, const char* bytes, std::size_t n, std::size_t* done) {
    TlsEnd& end = *of(bio);
    end.out_.insert(end.out_.end(), bytes, bytes + n);
    *done = n;
    return 1;
  }
  static int read(BIO* bio, char* into, std::size_t room, std::size_t* done) {
    TlsEnd& end = *of(bio);
    BIO_clear_retry_flags(bio);
    const std::ptrdiff_t n = end.receive_(reinterpret_cast<std::uint8_t*>(into), room);
    if (n > 0) {
      *done = static_cast<std::size_t>(n);
      return 1;
    }
    if (n < 0 && errno == EAGAIN)
      BIO_set_retry_read(bio);
    else
      end.ended_ = true;
    *done = 0;
    return 0;
  }
  static long control(BIO*, int what, long, void*) {
    return what == BIO_CTRL_FLUSH ? 1 : 0;  // no other control applies
  }
  static BIO_METHOD* method() {
    static BIO_METHOD* const kMethod = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tithe");
      BIO_meth_set_write_ex(m, write);
      BIO_meth_set_read_ex(m, read);
      BIO_meth_set_ctrl(m, control);
      return m;
    }();
    return kMethod;
  }
};

namespace {

constexpr std::size_t kReadBytes = 128 * 1024;   // per read from the kernel
constexpr std::size_t kWriteBytes = 128 * 1024;  // encrypted before a write to the kernel
constexpr long kMaxCertificates = 32 * 1024;
constexpr unsigned kExactName = X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;

// Classifies an error after which the connection is unusable. A missing or wrong certificate is a mistake in how the
// ranks were started; every other error means that bytes changed in transit. Before the first message of the other end
// was understood, invalid bytes may also come from a process that is not a rank.
enum class ErrorCause : std::uint8_t { kConfiguration, kReceivedDamaged, kSentDamaged };
constexpr std::array kMistakes = {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, SSL_R_WRONG_VERSION_NUMBER,
                                  SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_HTTP_REQUEST, SSL_R_NO_SHARED_CIPHER};
// Alerts from the other end.
constexpr std::array kMistakeAlerts = {SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE,
                                       SSL_AD_CERTIFICATE_REVOKED, SSL_AD_CERTIFICATE_EXPIRED,
                                       SSL_AD_CERTIFICATE_UNKNOWN, SSL_AD_UNKNOWN_CA,
                                       SSL_AD_ACCESS_DENIED,       SSL_AD_CERTIFICATE_REQUIRED};
constexpr std::array kDamageAlerts = {SSL_AD_BAD_RECORD_MAC,    SSL_AD_RECORD_OVERFLOW,
                                      SSL_AD_DECODE_ERROR,      SSL_AD_DECRYPT_ERROR,
                                      SSL_AD_ILLEGAL_PARAMETER, SSL_AD_UNEXPECTED_MESSAGE};
ErrorCause cause_of(unsigned long error, bool understood) {
  const auto among = [](const auto& codes, int code) {
    return std::ranges::find(codes, code) != codes.end();
  };
  const int reason = ERR_GET_REASON(error), alert = reason - SSL_AD_REASON_OFFSET;
  const bool from_rank = understood && reason != SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
  if ((!from_rank && among(kMistakes, reason)) || among(kMistakeAlerts, alert))
    return ErrorCause::kConfiguration;
  if (among(kDamageAlerts, alert)) return ErrorCause::kSentDamaged;
  if (alert <= 0) return ErrorCause::kReceivedDamaged;
  return understood ? ErrorCause::kSentDamaged : ErrorCause::kConfiguration;
}

// The text of OpenSSL's last error. Clears the error queue.
std::string openssl_error() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "it gives no reason";
}

Status wrong(std::string text) { return {Code::kInvalid, std::move(text)}; }

// An open file of the folder. OpenSSL reads it through its descriptor (`path`), so it reads the file that was checked.
// O_NONBLOCK keeps a FIFO from blocking the rank.
struct File {
  std::string name;
  UniqueFd fd = {};
  Status status = {};

  File(std::string file, bool secret) : name(std::move(file)) {
    fd = UniqueFd::from([this] { return ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
    struct stat is {};
    if (!fd.is_open() || fstat(fd.get(), &is) != 0)
      status = wrong(fmt::format(
          "tls: {}: {}; create a folder of certificates with `tithe keys new` (docs/reference/transports.md)",
          name, std::strerror(errno)));
    else if (!S_ISREG(is.st_mode))
      status = wrong(fmt::format("tls: {} is not a regular file", name));
    else if (secret && (is.st_mode & 077) != 0)
      status =
          wrong(fmt::format("tls: {} is a private key that other users can read: run chmod 600 on it", name));
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd.get()); }
};

// A rank is a server on connections from lower ranks and a client on its own, so its certificate must allow both.
Status fits(X509* certificate, const std::string& path) {
  const bool server = X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1;
  const bool client = X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1;
  if (server && client) return {};
  return wrong(fmt::format(
      "tls: {} may not be used by {} (its extended key usage): a rank's certificate must allow serverAuth "
      "and clientAuth",
      path,
      server   ? "a client"
      : client ? "a server"
               : "a server or a client"));
}

}  // namespace

std::string certificate_name(Rank rank) { return fmt::format("rank{}.tithe", rank); }

void Credentials::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

// Requires TLS 1.3 and verification of both sides, without tickets and sessions. The certificate must match the key and
// the rank.
Result<std::shared_ptr<const Credentials>> Credentials::load(const std::string& folder, Rank rank) {
  const File authority(folder + "/ca.pem", false);
  const File certificate(fmt::format("{}/rank{}.pem", folder, rank), false);
  const File key(fmt::format("{}/rank{}.key", folder, rank), true);
  for (const File* file : {&authority, &certificate, &key}) TITHE_TRY(file->status);
  auto credentials = std::make_shared<Credentials>();
  credentials->context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const c = credentials->context();
  if (c == nullptr) return Status(Code::kIo, "tls: " + openssl_error());
  SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(
      c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_max_cert_list(c, kMaxCertificates);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadBytes);
  SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  const auto refuse = [](const File& file) {
    return wrong(fmt::format("tls: {}: {}", file.name, openssl_error()));
  };
  if (SSL_CTX_load_verify_file(c, authority.path().c_str()) != 1) return refuse(authority);
  if (SSL_CTX_use_certificate_chain_file(c, certificate.path().c_str()) != 1) return refuse(certificate);
  if (SSL_CTX_use_PrivateKey_file(c, key.path().c_str(), SSL_FILETYPE_PEM) != 1) return refuse(key);
  if (SSL_CTX_check_private_key(c) != 1) return refuse(key);
  const std::string name = certificate_name(rank);
  if (X509_check_host(SSL_CTX_get0_certificate(c), name.c_str(), name.size(), kExactName, nullptr) != 1)
    return wrong(fmt::format("tls: {} is not issued for {}", certificate.name, name));
  TITHE_TRY(fits(SSL_CTX_get0_certificate(c), certificate.name));
  return std::shared_ptr<const Credentials>(std::move(credentials));
}

TlsEnd::TlsEnd(const Credentials& credentials, Rank calls, Move send, Move receive, bool authenticated)
    : send_(std::move(send)),
      receive_(std::move(receive)),
      ssl_(SSL_new(credentials.context())),
      authenticated_(authenticated) {
  TITHE_ASSERT(ssl_ != nullptr);
  BIO* const bio = BIO_new(Network::method());
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (calls < 0) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_hostflags(ssl_, kExactName);
    SSL_set1_host(ssl_, certificate_name(calls).c_str());
    SSL_set_connect_state(ssl_);
  }
}

TlsEnd::~TlsEnd() { SSL_free(ssl_); }

bool TlsEnd::is_rank(Rank rank) const {
  X509* const shown = SSL_get0_peer_certificate(ssl_);
  const std::string name = certificate_name(rank);
  return shown != nullptr && X509_check_host(shown, name.c_str(), name.size(), kExactName, nullptr) == 1;
}

bool TlsEnd::flush() {
  while (out_sent_ < out_.size()) {
    const std::ptrdiff_t n = send_(&out_[out_sent_], out_.size() - out_sent_);
    if (n < 0) return errno == EAGAIN;
    out_sent_ += static_cast<std::size_t>(n);
  }
  out_.clear();
  out_sent_ = 0;
  return true;
}

Status TlsEnd::failed() const {
  const OSSL_HANDSHAKE_STATE state = SSL_get_state(ssl_);
  const bool first = state == TLS_ST_BEFORE || state == TLS_ST_CW_CLNT_HELLO;
  const ErrorCause cause = cause_of(ERR_peek_last_error(), authenticated_ || !first);
  const std::string words = openssl_error();
  if (cause == ErrorCause::kConfiguration) return {Code::kMismatch, fmt::format("TLS failed: {}", words)};
  if (cause == ErrorCause::kSentDamaged)
    return {
        Code::kPeerLost,
        fmt::format("it closed the connection because data from this rank was damaged in transit (TLS: {})",
                    words)};
  return {Code::kCorrupt, fmt::format("data from it was damaged in transit (TLS: {})", words)};
}

// The result of an OpenSSL call that moved no bytes: 0 to wait for the network, -1 with error_ set.
std::ptrdiff_t TlsEnd::wait_or_fail(int result) {
  const int error = SSL_get_error(ssl_, result);
  const bool left = flush();  // sends handshake messages, or the alert for a refusal
  if (!error_.ok()) return -1;
  if (error == SSL_ERROR_WANT_READ && !ended_ && left) {
    drained_ = true;
    return 0;
  }
  const long verdict = SSL_get_verify_result(ssl_);
  if (error == SSL_ERROR_SSL && verdict != X509_V_OK)
    error_ = {Code::kMismatch,
              fmt::format("its certificate is refused: {}", X509_verify_cert_error_string(verdict))};
  else if (error == SSL_ERROR_SSL && !ended_)
    error_ = failed();
  else
    error_ = {Code::kPeerLost, "its connection was closed"};
  ERR_clear_error();
  return -1;
}

std::ptrdiff_t TlsEnd::handshake() {
  if (!error_.ok()) return -1;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) return wait_or_fail(done);
  return flush() ? 1 : wait_or_fail(-1);
}

std::ptrdiff_t TlsEnd::read(Bytes into) {
  if (!error_.ok()) return -1;
  std::size_t all = 0;
  while (all < into.size()) {  // SSL_read_ex() returns one record at a time
    ERR_clear_error();
    std::size_t n = 0;
    const int done = SSL_read_ex(ssl_, &into[all], into.size() - all, &n);
    if (done != 1) {
      const std::ptrdiff_t end = wait_or_fail(done);
      return all > 0 ? static_cast<std::ptrdiff_t>(all) : end;
    }
    all += n;
  }
  drained_ = false;
  return static_cast<std::ptrdiff_t>(all);
}

std::ptrdiff_t TlsEnd::write(ByteView from) {
  if (!error_.ok()) return -1;
  std::size_t all = 0;
  for (;;) {
    if (!flush()) {
      std::uint8_t nothing = 0;
      read({&nothing, 1});  // reads the alert that the other end may have sent before it closed
      if (error_.ok()) error_ = {Code::kPeerLost, "its connection was closed"};
      return -1;
    }
    if (unsent() > 0 || all == from.size()) return static_cast<std::ptrdiff_t>(all);
    while (all < from.size() && unsent() < kWriteBytes) {
      ERR_clear_error();
      std::size_t n = 0;
      const int done = SSL_write_ex(ssl_, &from[all], from.size() - all, &n);
      if (done != 1) {
        const std::ptrdiff_t end = wait_or_fail(done);
        return all > 0 ? static_cast<std::ptrdiff_t>(all) : end;
      }
      all += n;
    }
  }
}

}  // namespace tithe::tcp
