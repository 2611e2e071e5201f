// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "rpc/security/certificates.h"
#include "rpc/security/hmac.h"

namespace sheaf {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status Errno(const std::string& what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, what);
}

// Whether no other user can read a file of this owner and mode.
bool IsSecret(const struct stat& info) {
  if (info.st_uid == geteuid()) return (info.st_mode & 077) == 0;
  return info.st_uid == 0 && (info.st_mode & 037) == 0;
}

// The bytes of `path`. `secret`: as ReadSecretFile.
absl::StatusOr<std::string> ReadFile(const std::string& path, bool secret) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0) return Errno(path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (secret && !IsSecret(info)) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " must belong to this user and be readable by nobody else: chmod 600 ", path));
  }
  std::string bytes;
  char part[4096];
  while (bytes.size() <= kMaxFileBytes) {
    const ssize_t got = read(file.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno(path);
    if (got == 0) return bytes;
    bytes.append(part, static_cast<size_t>(got));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", kMaxFileBytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::string> ParseToken(std::string_view hexadecimal) {
  const absl::string_view digits =
      absl::StripAsciiWhitespace(absl::string_view(hexadecimal.data(), hexadecimal.size()));
  if (digits.size() != 64 || !std::all_of(digits.begin(), digits.end(), [](unsigned char c) {
        return absl::ascii_isxdigit(c);
      })) {
    return absl::InvalidArgumentError("a token has 64 hexadecimal digits");
  }
  return absl::HexStringToBytes(digits);
}

std::string TokenOf(std::string_view secret) {
  return std::string(AsView(Sha256(std::string("sheaf cluster 1").append(secret))));
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  return ReadFile(path, /*secret=*/true);
}

absl::StatusOr<std::string> LoadToken(const std::string& path) {
  SHEAF_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  absl::StatusOr<std::string> token = ParseToken(text);
  if (!token.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", token.status().message()));
  }
  return token;
}

absl::StatusOr<std::string> LoadOrMakeToken(const std::string& path) {
  // Written under another name and linked, so that whoever finds the file finds all of it.
  absl::StatusOr<std::string> there = LoadToken(path);
  if (there.status().code() != absl::StatusCode::kNotFound) return there;
  const std::string token(AsView(SecretBytes()));
  const std::string text = absl::StrCat(absl::BytesToHexString(token), "\n");
  const std::string draft = absl::StrCat(path, ".", getpid());
  {
    const UniqueFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.valid()) return Errno(draft);
    if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        fsync(file.get()) != 0) {
      const absl::Status status = Errno(draft);
      unlink(draft.c_str());
      return status;
    }
  }
  const bool made = link(draft.c_str(), path.c_str()) == 0;
  const absl::Status status = made ? absl::OkStatus() : Errno(path);
  unlink(draft.c_str());
  if (made) return token;
  // Somebody else was first.
  if (status.code() == absl::StatusCode::kAlreadyExists) return LoadToken(path);
  return status;
}

absl::StatusOr<Credentials> LoadCertificates(const std::string& directory,
                                             const std::string& peer_name) {
  Credentials out;
  out.peer_name = peer_name;
  SHEAF_ASSIGN_OR_RETURN(out.authority_pem, ReadFile(directory + "/ca.pem", /*secret=*/false));
  SHEAF_ASSIGN_OR_RETURN(out.certificate_pem, ReadFile(directory + "/node.pem", /*secret=*/false));
  SHEAF_ASSIGN_OR_RETURN(out.key_pem, ReadSecretFile(directory + "/node.key"));
  const absl::Status fit =
      CheckCertificates(out.authority_pem, out.certificate_pem, out.key_pem, peer_name);
  if (!fit.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": ", fit.message()));
  }
  return out;
}

absl::Status MakeNodeCertificate(const std::string& authority, const std::string& directory,
                                 const std::vector<std::string>& hosts, int64_t seconds_valid) {
  SHEAF_ASSIGN_OR_RETURN(const std::string pem, ReadFile(authority + "/ca.pem", /*secret=*/false));
  SHEAF_ASSIGN_OR_RETURN(const std::string key, ReadSecretFile(authority + "/ca.key"));
  return MakeNodeCertificateBy(pem, key, directory, hosts, seconds_valid);
}

}  // namespace sheaf
