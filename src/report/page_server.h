#pragma once
// A web server for one page, for browsers on this machine only.

#include <cstdint>
#include <memory>
#include <string>

namespace metaformer {

// Listens on 127.0.0.1 and answers GET: / with the page, /data with its data as JSON. The data have an ETag; a request
// with an equal If-None-Match gets status 304. A request whose Host is another name than 127.0.0.1 or localhost with
// this port gets status 421, so that no other site can read the page through a name that leads to this machine.
class PageServer {
 public:
  // Port 0: one that the system chooses. The answers are 503 until the first publish(). Errors: exit code 2, another
  // program uses the port, or it may not be used.
  explicit PageServer(std::uint16_t port);
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  ~PageServer();  // closes all connections

  std::uint16_t port() const;
  std::string url() const;  // http://127.0.0.1:PORT/

  void publish(std::string page, std::string data);

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace metaformer
