// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "rpc/security/credentials.h"
#include "rpc/security/hmac.h"

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
using Store = std::unique_ptr<X509_STORE, Freed<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>>;
using GeneralNames = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

constexpr int kMaxCertificatesInFile = 1000;

Bio Reading(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// All of `pem`, in order; none if one of them cannot be read.
std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> out;
  const Bio bio = Reading(pem);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    out.emplace_back(next);
    if (out.size() == kMaxCertificatesInFile) break;
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) out.clear();
  return out;
}

// The first certificate of `certificate_pem` and those that vouch for it, up to one of
// `authority_pem`, which may hold several. Times are not compared.
absl::StatusOr<std::vector<Certificate>> ChainOf(const std::string& authority_pem,
                                                 const std::string& certificate_pem) {
  const std::vector<Certificate> authorities = ReadCertificates(authority_pem);
  const std::vector<Certificate> own = ReadCertificates(certificate_pem);
  if (authorities.empty()) return absl::InvalidArgumentError("ca.pem is no certificate in PEM");
  if (own.empty()) return absl::InvalidArgumentError("node.pem is no certificate in PEM");
  const Store store(X509_STORE_new());
  for (const Certificate& each : authorities) X509_STORE_add_cert(store.get(), each.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_NO_CHECK_TIME);
  STACK_OF(X509)* const between = sk_X509_new_null();
  for (size_t i = 1; i < own.size(); ++i) sk_X509_push(between, own[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  std::vector<Certificate> out;
  absl::Status status;
  if (X509_STORE_CTX_init(context.get(), store.get(), own.front().get(), between) != 1 ||
      X509_verify_cert(context.get()) != 1) {
    status = absl::InvalidArgumentError(
        absl::StrCat("ca.pem did not sign node.pem: ",
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
  } else {
    const STACK_OF(X509)* const chain = X509_STORE_CTX_get0_chain(context.get());
    for (int i = 0; i < sk_X509_num(chain); ++i) {
      X509* const each = sk_X509_value(chain, i);
      X509_up_ref(each);
      out.emplace_back(each);
    }
  }
  sk_X509_free(between);
  ERR_clear_error();
  if (!status.ok()) return status;
  return out;
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
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
           AddExtension(out.get(), signer, NID_authority_key_identifier, "keyid:always") &&
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

std::vector<std::string> NamesOf(x509_st* certificate) {
  std::vector<std::string> out;
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    out.push_back(TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
  }
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS || name->type == GEN_URI) out.push_back(TextOf(name->d.ia5));
  }
  return out;
}

bool UseCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                     const std::string& key_pem, ssl_ctx_st* context) {
  const std::vector<Certificate> authorities = ReadCertificates(authority_pem);
  const std::vector<Certificate> own = ReadCertificates(certificate_pem);
  const Key key(PEM_read_bio_PrivateKey(Reading(key_pem).get(), nullptr, nullptr, nullptr));
  if (authorities.empty() || own.empty() || key == nullptr) return false;
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const Certificate& each : authorities) {
    if (X509_STORE_add_cert(store, each.get()) != 1) return false;
  }
  if (SSL_CTX_use_certificate(context, own.front().get()) != 1) return false;
  for (size_t i = 1; i < own.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, own[i].get()) != 1) return false;
  }
  return SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
}

bool NamesInclude(const std::vector<std::string>& names, const std::string& wanted) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return absl::EqualsIgnoreCase(name, wanted); });
}

absl::Status CheckCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                               const std::string& key_pem, const std::string& peer_name) {
  const absl::StatusOr<std::vector<Certificate>> chain = ChainOf(authority_pem, certificate_pem);
  const Key key(PEM_read_bio_PrivateKey(Reading(key_pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("node.key is no private key in PEM");
  }
  const std::vector<Certificate> own = ReadCertificates(certificate_pem);
  const bool fit = !own.empty() && X509_check_private_key(own.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!own.empty() && !fit) {
    return absl::InvalidArgumentError("node.key is not the key of node.pem");
  }
  if (!chain.ok()) return chain.status();
  for (const Certificate& each : *chain) {
    const char* const name = each == chain->front() ? "node.pem" : "ca.pem";
    if (X509_cmp_current_time(X509_get0_notBefore(each.get())) > 0) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is good from ",
                                                     TimeOf(X509_get0_notBefore(each.get())),
                                                     " on; is the clock right?"));
    }
    if (X509_cmp_current_time(X509_get0_notAfter(each.get())) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " was good until ", TimeOf(X509_get0_notAfter(each.get())),
                       "; make another with sheaf cert, for all nodes"));
    }
  }
  for (const auto& [purpose, use] : {std::pair(X509_PURPOSE_SSL_SERVER, "serverAuth"),
                                     std::pair(X509_PURPOSE_SSL_CLIENT, "clientAuth")}) {
    if (X509_check_purpose(chain->front().get(), purpose, 0) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "node.pem is not for ", use, ": a node needs its extended key usages serverAuth and ",
          "clientAuth, or a certificate that names none"));
    }
  }
  if (!peer_name.empty() && !NamesInclude(NamesOf(chain->front().get()), peer_name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("node.pem carries no name '", peer_name,
                     "', which --tls-peer-name wants of each node: other nodes would refuse it"));
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<int64_t> FirstEnd(const std::vector<Certificate>& certificates) {
  int64_t first = INT64_MAX;
  for (const Certificate& each : certificates) {
    tm time{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(each.get()), &time) != 1) {
      return absl::InvalidArgumentError("a certificate without a last day");
    }
    first = std::min<int64_t>(first, timegm(&time));
  }
  return first;
}

}  // namespace

absl::StatusOr<int64_t> ExpiryOf(const std::string& authority_pem,
                                 const std::string& certificate_pem) {
  SHEAF_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                         ChainOf(authority_pem, certificate_pem));
  return FirstEnd(chain);
}

absl::StatusOr<int64_t> ExpiryOf(const std::string& certificates_pem) {
  const std::vector<Certificate> all = ReadCertificates(certificates_pem);
  if (all.empty()) return absl::InvalidArgumentError("no certificate in PEM");
  return FirstEnd(all);
}

namespace {

// Makes `directory`, if it is not there, for files of these names, which must not be there.
absl::Status PrepareDirectory(const std::string& directory, const std::vector<const char*>& names) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    return absl::ErrnoToStatus(error, directory);
  }
  for (const char* name : names) {
    struct stat info;
    if (lstat((directory + name).c_str(), &info) == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory, name, " is there; name another directory, or remove it"));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteNode(const std::string& directory, X509* authority, EVP_PKEY* authority_key,
                       const std::string& names, int64_t seconds_valid) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate node =
      MakeCertificate(key.get(), "Sheaf node", authority, authority_key, names, seconds_valid);
  if (node == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat("OpenSSL makes no certificate for ", names));
  }
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/ca.pem", PemOf(authority), 0644));
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/node.key", PemOf(key.get()), 0600));
  return WriteNew(directory + "/node.pem", PemOf(node.get()), 0644);
}

}  // namespace

absl::Status MakeCertificateSet(const std::string& directory, const std::vector<std::string>& hosts,
                                int64_t seconds_valid) {
  SHEAF_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(hosts));
  SHEAF_RETURN_IF_ERROR(
      PrepareDirectory(directory, {"/ca.pem", "/ca.key", "/node.pem", "/node.key"}));
  const Key key(EVP_EC_gen("P-256"));
  // A name of its own: where ca.pem holds two authorities they are told apart by it.
  const std::string draw(AsView(SecretBytes()).substr(0, 8));
  const std::string name = absl::StrCat("Sheaf authority ", absl::BytesToHexString(draw));
  const Certificate authority =
      MakeCertificate(key.get(), name.c_str(), nullptr, key.get(), "", seconds_valid);
  if (authority == nullptr) {
    ERR_clear_error();
    return absl::InternalError("OpenSSL makes no authority");
  }
  SHEAF_RETURN_IF_ERROR(WriteNew(directory + "/ca.key", PemOf(key.get()), 0600));
  return WriteNode(directory, authority.get(), key.get(), names, seconds_valid);
}

absl::Status MakeNodeCertificateBy(const std::string& authority_pem,
                                   const std::string& authority_key, const std::string& directory,
                                   const std::vector<std::string>& hosts, int64_t seconds_valid) {
  SHEAF_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(hosts));
  const std::vector<Certificate> authorities = ReadCertificates(authority_pem);
  const Key key(PEM_read_bio_PrivateKey(Reading(authority_key).get(), nullptr, nullptr, nullptr));
  const bool fit = !authorities.empty() && key != nullptr &&
                   X509_check_private_key(authorities.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!fit) {
    return absl::InvalidArgumentError(
        "want ca.pem, the certificate of an authority, and ca.key, its key, both in PEM");
  }
  SHEAF_RETURN_IF_ERROR(PrepareDirectory(directory, {"/ca.pem", "/node.pem", "/node.key"}));
  return WriteNode(directory, authorities.front().get(), key.get(), names, seconds_valid);
}

}  // namespace sheaf
