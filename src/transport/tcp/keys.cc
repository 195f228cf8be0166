// SPDX-License-Identifier: Apache-2.0
// Creates X.509 certificates with OpenSSL: P-256 keys, a self-signed authority, and one certificate per rank that is
// valid as server and client.
#include "transport/tcp/keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/open_file.h"
#include "base/secret.h"
#include "transport/tcp/tls.h"

namespace tithe::tcp {
namespace {

constexpr std::chrono::seconds kEarlier = std::chrono::hours(1);

template <auto kFree>
struct By {
  template <typename Value>
  void operator()(Value* value) const {
    kFree(value);
  }
};
using Key = std::unique_ptr<EVP_PKEY, By<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, By<X509_free>>;
using Buffer = std::unique_ptr<BIO, By<BIO_free>>;

Status no_openssl() { return {Code::kIo, "OpenSSL could not create a certificate"}; }

bool extend(X509* certificate, X509* issuer, int which, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, &context, which, value);
  const bool done = made != nullptr && X509_add_ext(certificate, made, -1) == 1;
  X509_EXTENSION_free(made);
  return done;
}

struct Holder {
  Key key;
  Certificate certificate;
};

// Fills in and signs a certificate. `issuer` is the holder itself for the authority.
bool issue(Holder& holder, const Holder& issuer, const std::string& name, bool authority,
           std::chrono::seconds lasting) {
  X509* const c = holder.certificate.get();
  std::uint8_t number[16];
  if (!fill_random(number).ok()) return false;
  number[0] &= 0x7f;
  BIGNUM* const serial = BN_bin2bn(number, sizeof number, nullptr);
  const bool numbered = serial != nullptr && BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(c)) != nullptr;
  BN_free(serial);
  X509_NAME* const subject = X509_get_subject_name(c);
  const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
  const std::string names = "DNS:" + name;
  return numbered && X509_set_version(c, X509_VERSION_3) == 1 &&
         X509_gmtime_adj(X509_getm_notBefore(c), -kEarlier.count()) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(c), lasting.count()) != nullptr &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1 &&
         X509_set_issuer_name(c, X509_get_subject_name(issuer.certificate.get())) == 1 &&
         X509_set_pubkey(c, holder.key.get()) == 1 &&
         extend(c, issuer.certificate.get(), NID_basic_constraints,
                authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
         extend(c, issuer.certificate.get(), NID_key_usage,
                authority ? "critical,keyCertSign" : "critical,digitalSignature") &&
         extend(c, issuer.certificate.get(), NID_subject_key_identifier, "hash") &&
         (authority || (extend(c, issuer.certificate.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
                        extend(c, issuer.certificate.get(), NID_subject_alt_name, names.c_str()))) &&
         X509_sign(c, issuer.key.get(), EVP_sha256()) > 0;
}

Holder new_holder() { return {Key(EVP_EC_gen("P-256")), Certificate(X509_new())}; }

Status write(const std::string& path, mode_t mode, BIO* bytes) {
  char* data = nullptr;
  const long n = BIO_get_mem_data(bytes, &data);
  OpenFile file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  const ByteView all(reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(n));
  if (file.ok() && write_all(file.get(), all) && file.close_now() == 0) return {};
  return {Code::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
}

Status write(const std::string& path, X509* certificate) {
  const Buffer text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(text.get(), certificate) != 1) return no_openssl();
  return write(path, 0644, text.get());
}

Status write(const std::string& path, EVP_PKEY* key) {
  const Buffer text(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return no_openssl();
  return write(path, 0600, text.get());
}

Status fill(const std::string& folder, int world, std::chrono::seconds lasting) {
  // The authority's name is unique to the job, so that a certificate of another job is refused as "unknown issuer" and
  // not for an invalid signature.
  std::uint64_t number = 0;
  TITHE_TRY(fill_random({reinterpret_cast<std::uint8_t*>(&number), sizeof number}));
  Holder authority = new_holder();
  if (!authority.key || !authority.certificate ||
      !issue(authority, authority, fmt::format("tithe job {:016x}", number), true, lasting))
    return no_openssl();
  TITHE_TRY(write(folder + "/ca.pem", authority.certificate.get()));
  for (Rank r = 0; r < world; ++r) {
    Holder rank = new_holder();
    if (!rank.key || !rank.certificate || !issue(rank, authority, certificate_name(r), false, lasting))
      return no_openssl();
    TITHE_TRY(write(fmt::format("{}/rank{}.pem", folder, r), rank.certificate.get()));
    TITHE_TRY(write(fmt::format("{}/rank{}.key", folder, r), rank.key.get()));
  }
  return {};
}

}  // namespace

Status make_keys(const std::string& folder, int world, std::chrono::seconds lasting) {
  if (world < 1) return {Code::kInvalid, fmt::format("keys for {} ranks", world)};
  if (mkdir(folder.c_str(), 0700) != 0)
    return {Code::kInvalid, fmt::format("{}: {}", folder, std::strerror(errno))};
  const Status s = fill(folder, world, lasting);
  std::error_code ignored;
  if (!s.ok()) std::filesystem::remove_all(folder, ignored);  // an incomplete set of keys is useless
  return s;
}

}  // namespace tithe::tcp
