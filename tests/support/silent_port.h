#pragma once
// A port of this machine that accepts connections and sends nothing.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/catch.h"

class SilentPort {
 public:
  SilentPort() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(socket_, 16) == 0);
    REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number_ = ntohs(address.sin_port);
  }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  ~SilentPort() { ::close(socket_); }

  int number() const { return number_; }
  void wait_for_connection() const {
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, 60'000) == 1);
  }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM, 0), number_ = 0;
};
