// SPDX-License-Identifier: Apache-2.0
// Certificates that are valid for one role only, and bytes damaged in transit: each has its own error.
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "support/tls_ends.h"

namespace tithe::tcp {
namespace {

using namespace tls_ends;

// Writes a self-signed certificate of rank 0 with this extended key usage.
void write_certificate(const std::string& to, const char* usage) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const c = X509_new();
  X509_set_version(c, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(c), -60);
  X509_gmtime_adj(X509_getm_notAfter(c), 3600);
  X509_set_pubkey(c, key);
  for (const auto& [which, value] :
       {std::pair(NID_subject_alt_name, "DNS:rank0.tithe"), std::pair(NID_ext_key_usage, usage)}) {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, which, value);
    X509_add_ext(c, made, -1);
    X509_EXTENSION_free(made);
  }
  X509_sign(c, key, EVP_sha256());
  FILE* file = std::fopen((to + "/rank0.pem").c_str(), "w");
  PEM_write_X509(file, c);
  std::fclose(file);
  file = std::fopen((to + "/rank0.key").c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(c);
  EVP_PKEY_free(key);
}

// Without the check at load time, such a rank would fail in its first round, without a reason.
TEST(Tls, a_certificate_for_one_side_alone_is_refused_with_the_reason) {
  const std::string job = folder().job("usage");
  for (const auto& [usage, words] :
       {std::pair("serverAuth", "may not be used by a client"),
        std::pair("clientAuth", "may not be used by a server"),
        std::pair("emailProtection", "may not be used by a server or a client")}) {
    write_certificate(job, usage);
    const Status s = Credentials::load(job, 0).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << usage;
    EXPECT_NE(s.what().find(words), std::string::npos) << s.what();
    EXPECT_NE(s.what().find("serverAuth and clientAuth"), std::string::npos) << s.what();
  }
  write_certificate(job, "serverAuth,clientAuth");
  EXPECT_TRUE(Credentials::load(job, 0).ok());
}

// Damage must not be reported as a mismatch, whose cure is to give all ranks the same options.
TEST(Tls, a_damaged_record_header_is_corruption_not_mismatch) {
  const std::string job = folder().job("header");
  const auto one = credentials(job, 1), zero = credentials(job, 0);
  int damaged = 0;
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 5U, 20U})
    for (const int flip : {0x01, 0x04, 0x40, 0x80, 0xff}) {
      Connection c(*one, *zero, 0);
      ASSERT_EQ(c.handshake(), std::pair(std::ptrdiff_t{1}, std::ptrdiff_t{1}));
      ASSERT_EQ(c.caller.write(text(1000)), 1000);
      c.there.bytes[at] ^= static_cast<std::uint8_t>(flip);
      std::vector<std::uint8_t> in(2000);
      if (c.host.read(in) == 0) continue;  // the length has grown: the record is incomplete
      ++damaged;
      EXPECT_EQ(c.host.error().code(), Code::kCorrupt) << at << "^" << flip << ": " << c.host.error().what();
      EXPECT_EQ(c.caller.read(in), -1);
      EXPECT_EQ(c.caller.error().code(), Code::kPeerLost)
          << at << "^" << flip << ": " << c.caller.error().what();
      EXPECT_NE(c.caller.error().what().find("damaged"), std::string::npos) << c.caller.error().what();
    }
  EXPECT_GT(damaged, 25);
}

// Likewise for the caller's last message of a handshake, and for the whole handshake if the other end is known already.
TEST(Tls, damage_in_a_handshake_is_not_a_mismatch) {
  const std::string job = folder().job("greeting");
  const auto one = credentials(job, 1), zero = credentials(job, 0);
  for (const std::size_t at : {0U, 1U, 5U}) {
    Connection late(*one, *zero, 0);
    late.caller.handshake();
    late.host.handshake();
    ASSERT_EQ(late.caller.handshake(), 1);
    late.there.bytes[at] ^= 0x40;
    EXPECT_EQ(late.host.handshake(), -1);
    EXPECT_EQ(late.host.error().code(), Code::kCorrupt) << at << ": " << late.host.error().what();

    RelayedBytes there, back;
    TlsEnd caller(*one, 0, there.give(), back.take(), true);
    TlsEnd host(*zero, -1, back.give(), there.take());
    caller.handshake();
    host.handshake();
    back.bytes[at] ^= 0x40;
    EXPECT_EQ(caller.handshake(), -1);
    EXPECT_EQ(caller.error().code(), Code::kCorrupt) << at << ": " << caller.error().what();
  }
  RelayedBytes there, back;
  TlsEnd caller(*one, 0, there.give(), back.take(), true);
  TlsEnd host(*zero, -1, back.give(), there.take());
  caller.handshake();
  there.bytes[1] ^= 0x40;
  EXPECT_EQ(host.handshake(), -1);
  EXPECT_EQ(host.error().code(), Code::kMismatch)
      << "the caller has not been verified yet: " << host.error().what();
}

}  // namespace
}  // namespace tithe::tcp
