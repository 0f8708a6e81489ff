#pragma once
// A request to a web server of this machine, as raw text.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

// The whole answer of 127.0.0.`last` to the text of a request; "" if no connection is accepted.
inline std::string answer_of_port(int port, const std::string& request, unsigned last = 1) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000000u + last);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  std::string answer;
  if (::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    ::send(connection, request.data(), request.size(), MSG_NOSIGNAL);  // fails if the server has read enough
    std::array<char, 4096> piece;
    for (ssize_t size; (size = ::recv(connection, piece.data(), piece.size(), 0)) > 0;)
      answer.append(piece.data(), static_cast<std::size_t>(size));
  }
  ::close(connection);
  return answer;
}

// A GET request with this path, Host and further header lines, each with its line end.
inline std::string get(const std::string& path, const std::string& host, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n";
}
