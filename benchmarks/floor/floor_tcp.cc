// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What bare sockets do between two processes of this machine, plain and under TLS: a small message
// there and back, a stream of bytes, and the same 256 MB to four processes at once. The least that
// calls and objects between two nodes can cost. No code of Sheaf.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "figures.h"

namespace {

constexpr size_t kSmallBytes = 64;
constexpr size_t kPieceBytes = 4 << 20;  // As blocks of objects.
constexpr int kReaders = 4;
constexpr int kPiecesPerReader = 61;  // 256 MB.

// What a connection does: its first byte, which the first process sends.
enum Use : char { kEcho = 'e', kBytes = 'b' };

// A connection, plain or under TLS; all of it blocks.
class Connection {
 public:
  Connection(int fd, SSL_CTX* context, bool accepted) : fd_(fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (context == nullptr) return;
    ssl_ = SSL_new(context);
    SSL_set_fd(ssl_, fd);
    floors::Require((accepted ? SSL_accept(ssl_) : SSL_connect(ssl_)) == 1, "TLS");
  }
  ~Connection() {
    SSL_free(ssl_);
    close(fd_);
  }
  // 0: the other end has gone.
  size_t Read(char* to, size_t size) {
    const ssize_t got =
        ssl_ == nullptr ? read(fd_, to, size) : SSL_read(ssl_, to, static_cast<int>(size));
    return got < 0 ? 0 : static_cast<size_t>(got);
  }
  bool Write(const char* from, size_t size) {
    while (size > 0) {
      const ssize_t put =
          ssl_ == nullptr ? write(fd_, from, size) : SSL_write(ssl_, from, static_cast<int>(size));
      if (put <= 0) return false;
      from += put;
      size -= static_cast<size_t>(put);
    }
    return true;
  }
  bool ReadAll(char* to, size_t size) {
    for (size_t got = 0; size > 0; to += got, size -= got) {
      if ((got = Read(to, size)) == 0) return false;
    }
    return true;
  }

 private:
  const int fd_;
  SSL* ssl_ = nullptr;
};

// A certificate that vouches for itself, as no floor asks whose it is.
SSL_CTX* ServerContext() {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  floors::Require(X509_sign(certificate, key, EVP_sha256()) > 0 &&
                      SSL_CTX_use_certificate(context, certificate) == 1 &&
                      SSL_CTX_use_PrivateKey(context, key) == 1,
                  "certificate");
  return context;
}

int Listener(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  floors::Require(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                      listen(fd, 16) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
                  "listen");
  *port = ntohs(address.sin_port);
  return fd;
}

int DialPort(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  floors::Require(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
                  "connect");
  return fd;
}

// Two that take turns on one core are faster than any two nodes.
void KeepOnCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// --- the second process: a child for each connection ---

void Serve(Connection connection) {
  char use = 0;
  if (!connection.ReadAll(&use, 1)) return;
  if (use == kEcho) {
    KeepOnCore(1);
    char small[kSmallBytes];
    while (connection.ReadAll(small, sizeof small) && connection.Write(small, sizeof small)) {
    }
    return;
  }
  const std::string bytes(kPieceBytes, 'b');
  while (connection.Write(bytes.data(), bytes.size())) {
  }
}

[[noreturn]] void AcceptAll(int listener, SSL_CTX* context) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  while (true) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    if (fork() == 0) {
      Serve(Connection(fd, context, /*accepted=*/true));
      std::_Exit(0);
    }
    close(fd);
  }
}

pid_t StartServer(SSL_CTX* context, uint16_t* port) {
  const int listener = Listener(port);
  const pid_t child = fork();
  floors::Require(child >= 0, "fork");
  if (child == 0) AcceptAll(listener, context);
  close(listener);
  return child;
}

// --- the first process ---

std::unique_ptr<Connection> Dial(uint16_t port, SSL_CTX* context, Use use) {
  auto connection = std::make_unique<Connection>(DialPort(port), context, /*accepted=*/false);
  const char first = use;
  floors::Require(connection->Write(&first, 1), "use");
  return connection;
}

double PingPong(double seconds, uint16_t port, SSL_CTX* context) {
  const auto connection = Dial(port, context, kEcho);
  char small[kSmallBytes] = {};
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  KeepOnCore(0);
  const double rate = floors::MedianRate(seconds, [&] {
    for (int i = 0; i < 100; ++i) {
      floors::Require(
          connection->Write(small, sizeof small) && connection->ReadAll(small, sizeof small),
          "echo");
    }
    return uint64_t{100};
  });
  sched_setaffinity(0, sizeof all, &all);
  return rate;
}

double Bytes(double seconds, uint16_t port, SSL_CTX* context) {
  const auto connection = Dial(port, context, kBytes);
  std::string to(kPieceBytes, '\0');
  return floors::MedianRate(seconds, [&] {
    const size_t got = connection->Read(to.data(), to.size());
    floors::Require(got > 0, "read");
    return uint64_t{got};
  });
}

// Seconds until all readers, each a process, have 256 MB.
double Broadcast(uint16_t port, SSL_CTX* context) {
  std::vector<double> all;
  for (int round = 0; round < 3; ++round) {
    int go[2], ready[2];
    floors::Require(pipe(go) == 0 && pipe(ready) == 0, "pipe");
    pid_t readers[kReaders];
    for (pid_t& reader : readers) {
      reader = fork();
      floors::Require(reader >= 0, "fork");
      if (reader != 0) continue;
      std::string to(kPieceBytes, '\0');
      char order = 0;
      floors::Require(write(ready[1], "r", 1) == 1 && read(go[0], &order, 1) == 1, "pipe");
      const auto connection = Dial(port, context, kBytes);
      for (int i = 0; i < kPiecesPerReader; ++i)
        floors::Require(connection->ReadAll(to.data(), to.size()), "read");
      std::_Exit(0);
    }
    char said[kReaders];
    for (int i = 0; i < kReaders; ++i) floors::Require(read(ready[0], &said[i], 1) == 1, "pipe");
    const double begin = floors::NowSeconds();
    floors::Require(write(go[1], said, sizeof said) == sizeof said, "pipe");
    for (const pid_t reader : readers) waitpid(reader, nullptr, 0);
    all.push_back(floors::NowSeconds() - begin);
    for (const int fd : {go[0], go[1], ready[0], ready[1]}) close(fd);
  }
  return floors::Median(all);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  SSL_CTX* const client = SSL_CTX_new(TLS_client_method());
  uint16_t plain_port = 0, tls_port = 0;
  const pid_t plain = StartServer(nullptr, &plain_port);
  const pid_t tls = StartServer(ServerContext(), &tls_port);
  floors::Print("floor_tcp_ping_pong", "1/s", PingPong(seconds, plain_port, nullptr));
  floors::Print("floor_tcp_bytes", "GB/s", Bytes(seconds, plain_port, nullptr) / 1e9);
  floors::Print("floor_tcp_256mb_to_4_processes", "s", Broadcast(plain_port, nullptr));
  floors::Print("floor_tls_ping_pong", "1/s", PingPong(seconds, tls_port, client));
  floors::Print("floor_tls_bytes", "GB/s", Bytes(seconds, tls_port, client) / 1e9);
  floors::Print("floor_tls_256mb_to_4_processes", "s", Broadcast(tls_port, client));
  kill(plain, SIGKILL);
  kill(tls, SIGKILL);
  waitpid(plain, nullptr, 0);
  waitpid(tls, nullptr, 0);
}
