// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "rpc/credentials.h"
#include "rpc/hmac.h"

namespace sheaf {
namespace {

template <auto free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;


Bio Reading(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Certificate ReadCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(Reading(pem).get(), nullptr, nullptr, nullptr));
}

std::string WrittenTo(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string PemOf(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return WrittenTo(bio);
}

std::string PemOf(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return WrittenTo(bio);
}

bool AddExtension(X509* certificate, X509* issuer, int which, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, which, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// A certificate for `key`, named `name`, signed by `issuer` (itself, where nullptr) with
// `issuer_key`.
Certificate MakeCertificate(EVP_PKEY* key, const char* name, X509* issuer, EVP_PKEY* issuer_key,
                            const std::string& alternative_names, int64_t seconds_valid) {
  Certificate out(X509_new());
  if (out == nullptr) return nullptr;
  X509_set_version(out.get(), 2);
  Digest serial = SecretBytes();
  serial[0] = static_cast<char>((serial[0] & 0x7f) | 0x40);  // Positive, and no zero in front.
  ASN1_STRING_set(X509_get_serialNumber(out.get()), serial.data(), 16);
  X509_gmtime_adj(X509_getm_notBefore(out.get()), -3600);  // Clocks differ.
  X509_gmtime_adj(X509_getm_notAfter(out.get()), seconds_valid);
  X509_set_pubkey(out.get(), key);
  X509_NAME* subject = X509_get_subject_name(out.get());
  X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("Sheaf"), -1, -1, 0);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* const signer = issuer == nullptr ? out.get() : issuer;
  X509_set_issuer_name(out.get(), X509_get_subject_name(signer));
  bool done = true;
  if (issuer == nullptr) {
    done = AddExtension(out.get(), signer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           AddExtension(out.get(), signer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           AddExtension(out.get(), signer, NID_subject_key_identifier, "hash");
  } else {
    done = AddExtension(out.get(), signer, NID_basic_constraints, "critical,CA:FALSE") &&
           AddExtension(out.get(), signer, NID_key_usage, "critical,digitalSignature") &&
           AddExtension(out.get(), signer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           AddExtension(out.get(), signer, NID_subject_alt_name, alternative_names);
  }
  if (!done || X509_sign(out.get(), issuer_key, EVP_sha256()) == 0) return nullptr;
  return out;
}

// "DNS:localhost,IP:127.0.0.1,..."
absl::StatusOr<std::string> AlternativeNames(const std::vector<std::string>& hosts) {
  std::string out = "DNS:localhost,IP:127.0.0.1,IP:::1";
  for (const std::string& host : hosts) {
    unsigned char address[sizeof(in6_addr)];
    if (inet_pton(AF_INET, host.c_str(), address) == 1 ||
        inet_pton(AF_INET6, host.c_str(), address) == 1) {
      absl::StrAppend(&out, ",IP:", host);
    } else if (!host.empty() && host.size() <= 253 &&
               std::all_of(host.begin(), host.end(), [](unsigned char c) {
                 return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '*';
               })) {
      absl::StrAppend(&out, ",DNS:", host);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", host, "': want a host name or an address, without a port"));
    }
  }
  return out;
}

std::string TimeOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  return WrittenTo(bio);
}

absl::Status WriteNew(const std::string& path, const std::string& bytes, mode_t mode) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid() ||
      write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    const int error = errno;
    return absl::ErrnoToStatus(error, path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                               const std::string& key_pem) {
  const Certificate authority = ReadCertificate(authority_pem);
  const Certificate certificate = ReadCertificate(certificate_pem);
  const Key key(PEM_read_bio_PrivateKey(Reading(key_pem).get(), nullptr, nullptr, nullptr));
  if (authority == nullptr) return absl::InvalidArgumentError("ca.pem is no certificate in PEM");
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("node.pem is no certificate in PEM");
  }
  if (key == nullptr) return absl::InvalidArgumentError("node.key is no private key in PEM");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("node.key is not the key of node.pem");
  }
  // A chain may lie between: only a set of two is compared here, TLS checks all.
  if (X509_check_issued(authority.get(), certificate.get()) == X509_V_OK &&
      X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) != 1) {
    return absl::InvalidArgumentError("ca.pem did not sign node.pem");
  }
  for (const auto& [name, each] : {std::pair("ca.pem", authority.get()),
                                   std::pair("node.pem", certificate.get())}) {
    if (X509_cmp_current_time(X509_get0_notBefore(each)) > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is good from ", TimeOf(X509_get0_notBefore(each)), " on; is the clock right?"));
    }
    if (X509_cmp_current_time(X509_get0_notAfter(each)) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " was good until ", TimeOf(X509_get0_notAfter(each)),
                       "; make another with sheaf cert, on all nodes"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ExpiryOf(const std::string& authority_pem,
                                 const std::string& certificate_pem) {
  int64_t first = INT64_MAX;
  for (const std::string* pem : {&authority_pem, &certificate_pem}) {
    const Certificate certificate = ReadCertificate(*pem);
    tm time{};
    if (certificate == nullptr ||
        ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &time) != 1) {
      return absl::InvalidArgumentError("no certificate in PEM, or one without a last day");
    }
    first = std::min<int64_t>(first, timegm(&time));
  }
  return first;
}

absl::Status MakeCertificateSet(const std::string& directory,
                                const std::vector<std::string>& hosts, int64_t seconds_valid) {
  SHEAF_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(hosts));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    return absl::ErrnoToStatus(error, directory);
  }
  for (const char* name : {"/ca.pem", "/ca.key", "/node.pem", "/node.key"}) {
    struct stat info;
    if (lstat((directory + name).c_str(), &info) == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory, name, " is there; name another directory, or remove it"));
    }
  }
  const Key authority_key(EVP_EC_gen("P-256"));
  const Key node_key(EVP_EC_gen("P-256"));
  const Certificate authority =
      MakeCertificate(authority_key.get(), "Sheaf authority", nullptr, authority_key.get(), "",
                      seconds_valid);
  const Certificate node = authority == nullptr
                               ? nullptr
                               : MakeCertificate(node_key.get(), "Sheaf node", authority.get(),
                                                 authority_key.get(), names, seconds_valid);
  if (node == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("OpenSSL makes no certificate for ", names));
  }
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/ca.key", PemOf(authority_key.get()), 0600));
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/ca.pem", PemOf(authority.get()), 0644));
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/node.key", PemOf(node_key.get()), 0600));
  return WriteNew(directory + "/node.pem", PemOf(node.get()), 0644);
}

}  // namespace sheaf
