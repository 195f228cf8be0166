// SPDX-License-Identifier: Apache-2.0
// Two ends of a TLS connection with the test as the network, and the certificate checks of a listener.
#include "transport/tcp/tls.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "support/tls_ends.h"
#include "transport/tcp/listener.h"

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;
using namespace tls_ends;
namespace fs = std::filesystem;

TEST(Tls, traffic_cannot_be_read) {
  const std::string job = folder().job("read");
  const auto one = credentials(job, 1), zero = credentials(job, 0);
  Connection c(*one, *zero, 0);
  ASSERT_EQ(c.handshake(), std::pair(std::ptrdiff_t{1}, std::ptrdiff_t{1})) << c.caller.error().what();
  EXPECT_TRUE(c.host.is_rank(1));
  EXPECT_FALSE(c.host.is_rank(2));
  const auto plaintext = text(300'000);
  std::vector<std::uint8_t> heard;
  for (std::size_t sent = 0; heard.size() < plaintext.size();) {
    const std::ptrdiff_t n = c.caller.write(ByteView(plaintext).subspan(sent));
    ASSERT_GE(n, 0) << c.caller.error().what();
    sent += static_cast<std::size_t>(n);
    std::uint8_t some[10'000];
    const std::ptrdiff_t m = c.host.read(some);
    ASSERT_GE(m, 0) << c.host.error().what();
    heard.insert(heard.end(), some, some + m);
  }
  EXPECT_EQ(heard, plaintext);
  EXPECT_EQ(c.host.read(Bytes(heard).first(1)), 0);
  const auto& wire = c.there.seen;
  EXPECT_GE(wire.size(), plaintext.size());
  EXPECT_EQ(std::search(wire.begin(), wire.end(), plaintext.begin(), plaintext.begin() + 8), wire.end());
}

TEST(Tls, traffic_cannot_be_changed) {
  const std::string job = folder().job("changed");
  const auto one = credentials(job, 1), zero = credentials(job, 0);
  for (const std::size_t at : {std::size_t{0}, std::size_t{7}, std::size_t{900}}) {
    Connection c(*one, *zero, 0);
    ASSERT_EQ(c.handshake().second, 1);
    ASSERT_EQ(c.caller.write(text(1000)), 1000);
    c.there.bytes[at] ^= 1;
    std::vector<std::uint8_t> in(1000);
    EXPECT_EQ(c.host.read(in), -1) << at;
    EXPECT_FALSE(c.host.error().ok());
    EXPECT_EQ(std::count(in.begin(), in.end(), 0), 1000) << "no byte of the damaged record is returned";
  }
}

// An incomplete record returns no bytes and is not lost.
TEST(Tls, partial_records_are_read_once_complete) {
  const std::string job = folder().job("parts");
  const auto one = credentials(job, 1), zero = credentials(job, 0);
  Connection c(*one, *zero, 0);
  ASSERT_EQ(c.handshake().second, 1);
  ASSERT_EQ(c.caller.write(text(1000)), 1000);
  std::deque<std::uint8_t> whole;
  whole.swap(c.there.bytes);
  std::vector<std::uint8_t> in(1000);
  c.there.bytes.assign(whole.begin(), whole.begin() + 500);
  EXPECT_EQ(c.host.read(in), 0);
  EXPECT_FALSE(c.host.can_read_more()) << "more bytes must come from the network first";
  c.there.bytes.assign(whole.begin() + 500, whole.end());
  EXPECT_EQ(c.host.read(Bytes(in).first(10)), 10);
  EXPECT_TRUE(c.host.can_read_more());
  EXPECT_EQ(c.host.read(Bytes(in).subspan(10)), 990);
  EXPECT_EQ(in, text(1000));
}

TEST(Tls, clients_without_a_certificate_are_refused) {
  const auto zero = credentials(folder().job("nothing"), 0);
  SSL_CTX* const any = SSL_CTX_new(TLS_client_method());
  SSL* const ssl = SSL_new(any);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, out);
  SSL_set_connect_state(ssl);
  RelayedBytes back;
  TlsEnd host(*zero, -1, back.give(), [&](std::uint8_t* into, std::size_t n) -> std::ptrdiff_t {
    const int got = BIO_read(out, into, static_cast<int>(n));
    if (got <= 0) errno = EAGAIN;
    return got <= 0 ? -1 : got;
  });
  std::ptrdiff_t end = 0;
  for (int k = 0; k < 5 && end == 0; ++k) {
    SSL_do_handshake(ssl);
    end = host.handshake();
    const std::vector<std::uint8_t> reply(back.bytes.begin(), back.bytes.end());
    back.bytes.clear();
    BIO_write(in, reply.data(), static_cast<int>(reply.size()));
  }
  EXPECT_EQ(end, -1);
  EXPECT_EQ(host.error().code(), Code::kMismatch);
  EXPECT_NE(host.error().what().find("did not return a certificate"), std::string::npos)
      << host.error().what();
  SSL_free(ssl);
  SSL_CTX_free(any);
}

TEST(Tls, older_versions_are_refused) {
  const auto zero = credentials(folder().job("older"), 0);
  SSL_CTX* const old = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
  SSL* const ssl = SSL_new(old);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_set_connect_state(ssl);
  SSL_do_handshake(ssl);
  RelayedBytes back;
  TlsEnd host(*zero, -1, back.give(), [&](std::uint8_t* into, std::size_t n) -> std::ptrdiff_t {
    return BIO_read(out, into, static_cast<int>(n));
  });
  EXPECT_EQ(host.handshake(), -1);
  EXPECT_NE(host.error().what().find("unsupported protocol"), std::string::npos) << host.error().what();
  SSL_free(ssl);
  SSL_CTX_free(old);
}

TEST(Tls, mismatched_files_are_named) {
  const std::string job = folder().job("files");
  const auto says = [](const std::string& of, Rank rank, std::string_view words) {
    const Status s = Credentials::load(of, rank).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << words;
    EXPECT_NE(s.what().find(words), std::string::npos) << s.what();
  };
  says(job + "/none", 0, "tithe keys new");
  says(job, 3, "rank3.pem");
  const std::string open = folder().copy(job, "open");
  ASSERT_EQ(chmod((open + "/rank0.key").c_str(), 0644), 0);
  says(open, 0, "chmod 600");
  const std::string swapped = folder().copy(job, "swapped");
  fs::copy_file(job + "/rank1.pem", swapped + "/rank0.pem", fs::copy_options::overwrite_existing);
  says(swapped, 0, "rank0.key");
  fs::copy_file(job + "/rank1.key", swapped + "/rank0.key", fs::copy_options::overwrite_existing);
  says(swapped, 0, "is not issued for rank0.tithe");
  EXPECT_EQ(make_keys(job, 3, 1h).code(), Code::kInvalid) << "an existing folder is not changed";
  for (const std::string file : {"ca.pem", "rank0.pem", "rank0.key"}) {  // opening a FIFO must not block
    const std::string piped = folder().copy(job, "piped " + file);
    fs::remove(piped + "/" + file);
    ASSERT_EQ(mkfifo((piped + "/" + file).c_str(), 0600), 0);
    says(piped, 0, file + " is not a regular file");
    fs::remove(piped + "/" + file);
    fs::create_directory(piped + "/" + file);
    says(piped, 0, file + " is not a regular file");
  }
}

// ---- Certificates at a listener

class TlsListener : public ::testing::Test {
 protected:
  // Rank `from` connects to rank 0; both have the given credentials. Returns the caller's status.
  Status call(const std::string& caller, const std::string& host, Rank from = 1, Rank shown = 1) {
    asio::io_context context{1};
    const Job host_job{
        .rank = 0, .world = 3, .key = {1}, .credentials = host.empty() ? nullptr : credentials(host, 0)};
    const Job job{.rank = from,
                  .world = 3,
                  .key = {1},
                  .credentials = caller.empty() ? nullptr : credentials(caller, shown)};
    Listener listener(context, host_job);
    std::vector<Endpoint> at{{asio::ip::address_v4::loopback(), 0}};
    EXPECT_TRUE(listener.listen(at).ok());
    let_in_ = 0;
    listener.open([this](const ConnectRequest&, const std::shared_ptr<Wire>&) { return ++let_in_ > 0; });
    std::optional<Status> done;
    Connector one(context, job, {.purpose = Purpose::kControl, .from = from, .to = 0}, at,
                  [&](Status s, const std::shared_ptr<Wire>&) { done.emplace(std::move(s)); });
    one.begin();
    const auto deadline = Clock::now() + 20s;
    while (!done && Clock::now() < deadline) context.run_one_for(1ms);
    for (int k = 0; k < 20; ++k) context.run_one_for(1ms);
    host_says_ = listener.refused();
    return done.value_or(Status(Code::kTimeout, "nobody answered"));
  }

  int let_in_ = 0;
  std::string host_says_;
};

// A full disk, simulated by a limit on the size of files.
TEST(Tls, a_full_disk_is_named_and_keeps_no_keys) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("tithe_full_" + std::to_string(getpid()))).string();
  rlimit had{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &had), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{100, had.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const Status status = make_keys(folder, 1, 1h);
  setrlimit(RLIMIT_FSIZE, &had);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.what().find(folder + "/ca.pem: File too large"), std::string::npos) << status.what();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(TlsListener, a_rank_with_a_certificate_is_accepted) {
  const std::string job = folder().job("door");
  const Status s = call(job, job);
  EXPECT_TRUE(s.ok()) << s.what() << host_says_;
  EXPECT_EQ(let_in_, 1);
}

TEST_F(TlsListener, a_wrong_certificate_is_refused_with_the_reason) {
  const std::string job = folder().job("right"), other = folder().job("other");
  const std::string expired = folder().job("expired", -60s);
  const auto host_refuses = [&](const Status& s, std::string_view host, std::string_view caller) {
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(let_in_, 0);
    EXPECT_NE(host_says_.find(host), std::string::npos) << host_says_;
    EXPECT_NE(s.what().find(caller), std::string::npos) << s.what();
  };
  // A rank with a certificate of another authority, which trusts this job's authority.
  const std::string foreign = folder().copy(other, "foreign");
  fs::copy_file(job + "/ca.pem", foreign + "/ca.pem", fs::copy_options::overwrite_existing);
  host_refuses(call(foreign, job), "unable to get local issuer certificate", "unknown ca");
  host_refuses(call(job, job, 1, 2), "not issued for rank1.tithe", "connection");  // of another rank
  host_refuses(call("", job), "TLS failed", "connection");                         // no TLS at all
  const std::string believes = folder().copy(job, "believes the expired");
  fs::copy_file(expired + "/ca.pem", believes + "/ca.pem", fs::copy_options::overwrite_existing);
  EXPECT_EQ(call(believes, expired).what(), "its certificate is refused: certificate has expired");
  EXPECT_EQ(call(job, other).what(), "its certificate is refused: unable to get local issuer certificate");
  EXPECT_FALSE(call(job, "").ok());
  EXPECT_EQ(let_in_, 0);
}

TEST_F(TlsListener, an_expired_certificate_is_refused_with_the_reason) {
  const std::string job = folder().job("in time"), late = folder().job("late", -60s);
  // make_keys() cannot create both certificates under one authority, so the host trusts the late one's authority.
  const std::string host = folder().copy(job, "believes");
  fs::copy_file(late + "/ca.pem", host + "/ca.pem", fs::copy_options::overwrite_existing);
  const std::string caller = folder().copy(late, "caller");
  fs::copy_file(job + "/ca.pem", caller + "/ca.pem", fs::copy_options::overwrite_existing);
  const Status s = call(caller, host);
  EXPECT_NE(host_says_.find("certificate has expired"), std::string::npos) << host_says_;
  EXPECT_NE(s.what().find("certificate expired"), std::string::npos) << s.what();
}

}  // namespace
}  // namespace tithe::tcp
